"""What `launcher.py` does: compose a recipe, start the processes, watch them, report.

Standard library, the client, Hydra, psutil, pyarrow and rich; never torch or verl, so it starts at
once.
"""
