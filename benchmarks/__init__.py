"""Measurements of this project: speed and memory, never scores."""
