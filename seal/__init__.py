"""SEAL: agents and their learning environment evolve together (arXiv 2605.24426)."""
