"""The routes of the pages, and the border where an error becomes a sentence.

In: a GET request. Out: a page, or one sentence with status 404. Any text from a file may be model
text and hostile: Jinja2 escapes all of it, no template marks anything as safe, and the
Content-Security-Policy lets the browser run and load only this package's own files.
"""

import hashlib
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import HTMLResponse
from fastapi.staticfiles import StaticFiles
from jinja2 import Environment, PackageLoader, StrictUndefined, select_autoescape
from starlette.exceptions import HTTPException
from starlette.middleware.trustedhost import TrustedHostMiddleware

from seal.logview import charts, listing, views
from seal.logview.experiments import Experiments, NotThere
from seal.logview.listing import Filters
from seal.logview.views import View
from seal.records.json_lines import BadLine

_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; form-action 'self'; base-uri 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-cache",
}
# A foreign page whose host name resolves to this machine must not read the answers (DNS rebinding).
LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Names of this machine: the pages have no access control, so they answer to these only."""


def create_app(folder: Path) -> FastAPI:
    """The viewer of one experiments folder."""
    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.add_middleware(TrustedHostMiddleware, allowed_hosts=[*LOOPBACK, "[::1]"])
    app.mount("/static", StaticFiles(packages=[("seal.logview", "static")]))
    experiments = Experiments(folder)
    pages = _environment()

    def page(request: Request, view: View, status: int = 200) -> Response:
        text = pages.get_template(view.template).render(view.values)
        body = text.encode("utf-8", "backslashreplace")
        # The browser asks for its page every few seconds: an unchanged page is not sent again.
        tag = f'"{hashlib.sha256(body).hexdigest()[:32]}"'
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers={"ETag": tag})
        return HTMLResponse(body, status_code=status, headers={"ETag": tag})

    @app.middleware("http")
    async def with_headers(
        request: Request, answer: Callable[[Request], Awaitable[Response]]
    ) -> Response:
        response = await answer(request)
        response.headers.update(_HEADERS)
        return response

    @app.exception_handler(NotThere)
    @app.exception_handler(BadLine)
    def not_there(request: Request, error: Exception) -> Response:
        return page(request, views.sentence(str(error)), 404)

    @app.exception_handler(HTTPException)
    def refused(request: Request, error: HTTPException) -> Response:
        text = f"There is no such page here ({error.status_code}: {error.detail})."
        return page(request, views.sentence(text), error.status_code)

    @app.exception_handler(RequestValidationError)
    def not_a_number(request: Request, error: RequestValidationError) -> Response:
        return page(request, views.sentence("Steps and lines are whole numbers."), 404)

    @app.get("/healthz")
    def healthz() -> dict[str, str]:
        """The launcher waits until this answers."""
        return {"status": "ok", "experiments": str(folder)}

    @app.get("/")
    def every_run(request: Request) -> Response:
        return page(request, views.every_run(experiments))

    @app.get("/runs/{name}")
    def run(request: Request, name: str) -> Response:
        return page(request, views.run(experiments.run(name)))

    @app.get("/runs/{name}/metrics")
    def metrics(request: Request, name: str) -> Response:
        return page(request, views.metrics(experiments.run(name)))

    @app.get("/runs/{name}/steps/{step}")
    def step(request: Request, name: str, step: int) -> Response:
        filters = Filters.of(request.query_params)
        return page(request, views.step(experiments.run(name), step, filters))

    @app.get("/runs/{name}/steps/{step}/dialogues/{line}")
    def rollout(request: Request, name: str, step: int, line: int) -> Response:
        return page(request, views.rollout(experiments.run(name), step, line))

    @app.get("/runs/{name}/validation/{step}")
    def validation(request: Request, name: str, step: int) -> Response:
        filters = Filters.of(request.query_params)
        return page(request, views.validation(experiments.run(name), step, filters))

    @app.get("/runs/{name}/validation/{step}/dialogues/{line}")
    def validated(request: Request, name: str, step: int, line: int) -> Response:
        return page(request, views.validated(experiments.run(name), step, line))

    return app


def _environment() -> Environment:
    # StrictUndefined: a misspelt value in a template is an error, not an empty place.
    environment = Environment(
        loader=PackageLoader("seal.logview"),
        autoescape=select_autoescape(default=True, default_for_string=True),
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., Any]] = {
        "percent": views.percent,
        "number": listing.number,
        "moment": views.moment,
        "style": charts.style_of,
    }
    environment.filters.update(filters)
    return environment
