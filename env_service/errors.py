"""The error of a request that the service cannot serve.

`env_service.app` turns it into the error envelope, {"success": false, "error": {"code",
"message"}}. The message never carries a traceback, a path or a tool's arguments.
"""


class ServiceError(Exception):
    """A request that cannot be served.

    Args:
        status: HTTP status.
        code: Stable name of the kind of error.
        message: What was received, what was expected, what to do.
    """

    def __init__(self, status: int, code: str, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
