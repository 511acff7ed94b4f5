"""The one exception of a training that its own rules end."""


class TrainingError(Exception):
    """Training cannot start or go on; the message says why and what to do."""
