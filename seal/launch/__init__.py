"""What `launcher.py` does: compose a recipe, start the processes, watch them, report.

Standard library, rooms A and B, Hydra, psutil and rich; never torch or verl.
"""
