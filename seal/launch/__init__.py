"""The work of `launcher.py`: compose a recipe, start the processes, watch them, report.

This package does not import torch or verl, so the launcher starts at once.
"""
