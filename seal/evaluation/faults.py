"""What stops an evaluation. None of these is the model's doing, so none becomes a score."""


class EvaluationError(Exception):
    """The evaluation cannot start or go on; the message says why and what to do."""


class EndpointFault(EvaluationError):
    """The model's endpoint failed or could not be reached."""


class Unreachable(EndpointFault):
    """Nothing answers at the endpoint's address, however often it is tried."""


class RefusedDialogue(EndpointFault):
    """The endpoint refused to go on with one dialogue; it may still accept others."""
