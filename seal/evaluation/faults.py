"""What stops an evaluation: never the model's doing, never a score."""


class EvaluationError(Exception):
    """The evaluation cannot start or go on; the message says why and what to do."""


class EndpointFault(EvaluationError):
    """The model's endpoint failed or could not be reached."""


class RefusedDialogue(EndpointFault):
    """The endpoint refuses one dialogue, after it had answered in it; others it may take."""
