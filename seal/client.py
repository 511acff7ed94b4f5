"""Async client of an environment service: the wire of `seal.wire`, typed.

Who calls it: `seal.episode` (create, step, evaluate, release), the trainer (put_profile) and the
launcher (health). What it does not do: keep a dialogue, or decide what a fault means for training.
The transport can be swapped, so tests need no socket.
"""

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx
import tenacity

from seal.wire import (
    PROTOCOL_VERSION,
    CreateReply,
    EvaluateReply,
    InterfaceReply,
    Message,
    Mode,
    StepReply,
    TurnDiagnosis,
)


class EnvironmentFault(Exception):
    """The service failed or could not be reached. Never the model's doing, never a reward."""


class EnvironmentClient:
    """One service, any number of concurrent episodes.

    Args:
        url: Base address, e.g. http://127.0.0.1:8080.
        env_type: Name of the environment on that service, e.g. bfcl.
        timeout_s: Seconds one request may take.
        attempts: How often a request that got no answer is sent. Repeating is safe: a step
            carries its number, a second /create of a live instance is refused, and every other
            request can be repeated by its nature.
        transport: Replaces the network in tests.
    """

    def __init__(
        self,
        url: str,
        env_type: str,
        *,
        timeout_s: float = 60.0,
        attempts: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._env_type = env_type
        self._attempts = attempts
        self._url = url
        # trust_env=False: a proxy set for the outside world must not see a local service.
        self._http = httpx.AsyncClient(
            base_url=url,
            timeout=timeout_s,
            transport=transport,
            trust_env=False,
            # httpcore looks at every idle connection before each request: few are faster than many.
            limits=httpx.Limits(max_connections=16),
        )

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._http.aclose()

    async def health(self) -> None:
        """Check that the service is healthy and speaks this protocol.

        Raises:
            EnvironmentFault: No answer, not healthy, without our environment, or another protocol
                version.
        """
        data = await self._request("GET", "/healthz")
        if self._env_type not in data.get("environments", ()):
            raise EnvironmentFault(
                f"the service at {self._url} does not serve {self._env_type!r}, it serves "
                f"{data.get('environments')} (env_service.env_type)"
            )
        theirs = data.get("protocol_version")
        if theirs != PROTOCOL_VERSION:
            raise EnvironmentFault(
                f"the service at {self._url} speaks protocol version {theirs}, this client "
                f"{PROTOCOL_VERSION}; start the service from the same version of the project"
            )

    async def create(
        self, instance_id: str, task_id: str, *, mode: Mode, run_id: str, tool_format: str
    ) -> CreateReply:
        """Open an episode; its tool docs come as structured data."""
        params = {"mode": mode, "run_id": run_id, "tool_format": tool_format, "tools": "structured"}
        data = await self._post("/create", instance_id, task_id=task_id, params=params)
        info = data["info"]
        return CreateReply(
            state=tuple(data["state"]),
            tools=tuple(info["tools"]),
            category=info["category"],
            interface_version=info["interface_version"],
        )

    async def step(self, instance_id: str, number: int, message: Message) -> StepReply:
        """Send assistant message `number` (from 0) and get what follows it."""
        data = await self._post("/step", instance_id, messages=message, params={"step": number})
        return StepReply(
            state=tuple(data["state"]),
            terminated=data["is_terminated"],
            truncated=data["info"]["truncated"],
            turn=data["info"]["turn"],
        )

    async def evaluate(self, instance_id: str) -> EvaluateReply:
        """Verdict and labels of the episode as it stands."""
        data = await self._post("/evaluate", instance_id)
        return EvaluateReply(
            accuracy=float(data["accuracy"]),
            turns=tuple(TurnDiagnosis(**turn) for turn in data["diagnosis"]),
            interface_version=data["interface_version"],
            truncated=data["truncated"],
        )

    async def release(self, instance_id: str) -> None:
        """Forget the episode."""
        await self._post("/release", instance_id)

    async def put_profile(
        self, run_id: str, profile: Mapping[str, Any], config: Mapping[str, Any]
    ) -> InterfaceReply:
        """Send a round's failure profile; the service evolves the run's interface from it."""
        body = {"profile": profile, "config": config}
        data = await self._request("PUT", f"/runs/{run_id}/profile", json=body)
        return InterfaceReply(**{**data, "active": tuple(data["active"])})

    async def _post(
        self,
        path: str,
        instance_id: str,
        *,
        task_id: str | None = None,
        messages: Message | Sequence[Message] | None = None,
        params: Mapping[str, Any] | None = None,
    ) -> dict[str, Any]:
        body: dict[str, Any] = {"env_type": self._env_type, "instance_id": instance_id}
        if task_id is not None:
            body["task_id"] = task_id
        if messages is not None:
            body["messages"] = messages
        if params is not None:
            body["params"] = params
        return await self._request("POST", path, json=body)

    async def _request(self, method: str, path: str, json: Any = None) -> dict[str, Any]:
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=5.0),
            retry=tenacity.retry_if_exception_type(httpx.TransportError),
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            response: httpx.Response = await retrying(self._http.request, method, path, json=json)
        except httpx.TransportError as error:
            raise EnvironmentFault(
                f"no answer from the environment service at {self._url}{path} "
                f"({type(error).__name__}, {self._attempts} attempts); is it running?"
            ) from error
        return self._data(path, response)

    def _data(self, path: str, response: httpx.Response) -> dict[str, Any]:
        try:
            body = response.json()
        except ValueError:
            body = {}
        if response.is_success and body.get("success") is True:
            data = body.get("data")
            return data if isinstance(data, dict) else {}
        error = body.get("error") or {}
        raise EnvironmentFault(
            f"the environment service at {self._url}{path} answered {response.status_code} "
            f"({error.get('code', 'no code')}): {error.get('message', 'no message')}"
        )
