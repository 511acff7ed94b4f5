"""What stops an exploration."""


class ExplorationError(Exception):
    """It cannot start or go on; the message says why and what to do."""
