"""SEAL: agents and their learning environment evolve together (arXiv 2605.24426)."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
"""The project's folder: recipes name data, models and outputs relative to it."""
