"""An OpenAI-compatible endpoint of a test's own making, at a free port of this machine.

A test says what it answers and looks at what it was asked; the client on the other side is the real
one.
"""

import contextlib
import json
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

Answer = Callable[[dict[str, Any]], tuple[int, Any]]
"""Body of a request to /chat/completions -> status and body of the reply; bytes go as they are."""


class ScriptedEndpoint:
    """What it was asked, and how it answers."""

    def __init__(self, answer: Answer, owner: str) -> None:
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        """The header `authorization` of each request to /chat/completions."""
        self.answer = answer
        self.owner = owner
        self.model = "m"
        self.pages: list[tuple[int, Any]] = []
        """Replies to GET before the list of models comes again."""
        self.url = ""


@contextlib.contextmanager
def serving(answer: Answer, owner: str = "somebody") -> Iterator[ScriptedEndpoint]:
    """Serve until the end of the block."""
    endpoint = ScriptedEndpoint(answer, owner)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if endpoint.pages:
                self.reply(*endpoint.pages.pop(0))
                return
            model = {"id": endpoint.model, "object": "model", "created": 0}
            model |= {"owned_by": endpoint.owner, "root": "weights", "max_model_len": 1000}
            self.reply(200, {"object": "list", "data": [model]})

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            if self.path == "/tokenize":
                self.reply(200, {"tokens": [7] if body["prompt"] == "<end>" else [1, 2]})
                return
            endpoint.asked.append(body)
            endpoint.keys.append(self.headers["authorization"])
            self.reply(*endpoint.answer(body))

        def reply(self, status: int, body: Any) -> None:
            content = body if isinstance(body, bytes) else json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            # A client that waits no longer has closed its end.
            with contextlib.suppress(BrokenPipeError):
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.url = f"http://127.0.0.1:{server.server_port}/v1"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def said(
    text: str | None, prompt: int = 50, completion: int = 10, **message: Any
) -> tuple[int, dict[str, Any]]:
    """A completion with its usage."""
    whole = {"role": "assistant", "content": text, **message}
    choice = {"index": 0, "finish_reason": "stop", "message": whole}
    usage = {"prompt_tokens": prompt, "completion_tokens": completion}
    usage["total_tokens"] = prompt + completion
    reply = {"id": "1", "object": "chat.completion", "created": 0, "model": "m"}
    return 200, {**reply, "choices": [choice], "usage": usage}


def too_long() -> tuple[int, dict[str, Any]]:
    """What vLLM says of a prompt and a budget that do not fit."""
    message = "This model's maximum context length is 1000 tokens. However, you requested 500"
    return 400, {"error": {"message": message, "type": "BadRequestError", "code": 400}}
