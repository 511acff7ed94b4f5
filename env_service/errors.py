"""What the service answers when it cannot answer.

In: a status, a code for programs, a sentence for people. Out: the error envelope of the wire,
{"success": false, "error": {"code", "message"}}. Raised by live episodes, runs and routes; turned
into a reply by `env_service.app`. Never carries a traceback, a path or a tool's arguments.
"""


class ServiceError(Exception):
    """A request that cannot be served.

    Args:
        status: HTTP status.
        code: Stable name of the kind of error.
        message: What was got, what was expected, what to do.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
