"""Measurements of the environment service: its speed (bench), and its endurance (soak)."""
