"""Async client of environment services: the wire of `seal.wire`, typed.

It does not keep a dialogue (`seal.environment.episode`) and does not decide what a fault means for
training. `seal.environment.addresses` chooses the service of an episode. The transport can be
swapped, so tests need no socket.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

import httpx
import tenacity
from httpx_aiohttp import AiohttpTransport

from seal.environment.access_token import TOKEN_VARIABLE
from seal.environment.addresses import COOL_DOWN_S, Addresses, url_list
from seal.wire import (
    PROTOCOL_VERSION,
    CreateReply,
    EvaluateReply,
    InterfaceReply,
    Message,
    Mode,
    StepReply,
    TurnDiagnosis,
    TurnProgress,
)

logger = logging.getLogger(__name__)

FULL_WAIT_S = 60.0
"""Seconds that a new episode waits, all pauses together, while every service is full."""


class EnvironmentFault(Exception):
    """The service failed or could not be reached. Never the model's doing, never a reward."""


class _NoAnswer(EnvironmentFault):
    """Nothing came back, however often it was asked."""


class _NotNow(EnvironmentFault):
    """An answer that says to ask again: 503, or the instance still works on this very request."""


class _Full(EnvironmentFault):
    """The service has as many episodes as it may have."""


PROFILE_GRACE_S = 5.0
"""Seconds that a service has for a profile after another one has taken it."""
CONNECTIONS = 32
"""Connections to one address; requests beyond wait for one."""


class EnvironmentClient:
    """One or several equal services, any number of concurrent episodes.

    New episodes are spread over the services and stay where they were created. A service that does
    not answer gets no new ones for a while; its episodes are lost, which is a fault of each, and
    the caller may begin them anew.

    Args:
        urls: Base address, e.g. http://127.0.0.1:8082, or several.
        env_type: Name of the environment on these services, e.g. bfcl.
        token: Access token, for services that want one.
        timeout_s: Seconds one request may take.
        attempts: How often a request is sent that got no answer or was answered "not now".
            Repeating is safe: a step carries its number, an identical /create of an instance that
            nothing has happened to is answered from the record, as a step is, and every other
            request can be repeated by its nature.
        transport: Replaces the network in tests.
    """

    def __init__(
        self,
        urls: str | Sequence[str],
        env_type: str,
        *,
        token: str | None = None,
        timeout_s: float = 60.0,
        attempts: int = 4,
        transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        self._env_type = env_type
        self._attempts = attempts
        self._token = token
        self._addresses = Addresses(url_list(urls))
        # One pool an address: requests that wait for a dead one must not hold up the others'.
        self._http = {
            # trust_env=False: a proxy set for the outside world must not see a local service.
            url: httpx.AsyncClient(
                base_url=url,
                headers=None if token is None else {"Authorization": f"Bearer {token}"},
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
                # aiohttp's own takes a third of the processor time of httpx's.
                transport=transport
                or AiohttpTransport(
                    limits=httpx.Limits(max_connections=CONNECTIONS), trust_env=False
                ),
                trust_env=False,
            )
            for url in self._addresses.urls
        }

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
        for http in self._http.values():
            await http.aclose()

    async def health(self) -> None:
        """Check that every service is healthy, speaks this protocol and takes our token.

        Raises:
            EnvironmentFault: One gives no answer, is not healthy, is without our environment, has
                another protocol version, or wants a token.
        """
        for url in self._addresses.urls:
            data = await self._ask(url, "GET", "/healthz")
            if self._env_type not in data.get("environments", ()):
                raise EnvironmentFault(
                    f"the service at {url} does not serve {self._env_type!r}, it serves "
                    f"{data.get('environments')} (env_service.env_type)"
                )
            theirs = data.get("protocol_version")
            if theirs != PROTOCOL_VERSION:
                raise EnvironmentFault(
                    f"the service at {url} speaks protocol version {theirs}, this client "
                    f"{PROTOCOL_VERSION}; start the service from the same version of the project"
                )
            # /healthz is open to all; this one is not, changes nothing and answers for any run.
            await self._ask(url, "GET", "/runs/health/interface")

    async def create(
        self,
        instance_id: str,
        task_id: str,
        *,
        mode: Mode,
        run_id: str,
        interface_version: int | None,
        tool_format: str,
    ) -> CreateReply:
        """Open an episode; its tool docs come as structured data.

        Raises:
            EnvironmentFault: No service answers, all stayed full for FULL_WAIT_S, or one refused.
        """
        params = {
            "mode": mode,
            "run_id": run_id,
            "interface_version": interface_version,
            "tool_format": tool_format,
            "tools": "structured",
        }
        body = self._body(instance_id, task_id=task_id, params=params)
        retrying = tenacity.AsyncRetrying(
            # The pauses alone: what the requests themselves take is bounded by their own limits.
            stop=lambda state: state.idle_for + state.upcoming_sleep > FULL_WAIT_S,
            wait=tenacity.wait_exponential_jitter(multiplier=0.5, max=5.0),
            retry=tenacity.retry_if_exception_type(_Full),
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            data: dict[str, Any] = await retrying(self._create_somewhere, instance_id, body)
        except _Full as fault:
            raise EnvironmentFault(f"{fault} (waited {FULL_WAIT_S:.0f} s)") from fault
        except BaseException:
            self._addresses.forget(instance_id)  # what never began must not count as live
            raise
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
            progress=TurnProgress(**data["progress"]),
        )

    async def release(self, instance_id: str) -> None:
        """Forget the episode."""
        try:
            await self._post("/release", instance_id)
        finally:
            self._addresses.forget(instance_id)

    async def put_profile(
        self,
        run_id: str,
        profile: Mapping[str, Any],
        config: Mapping[str, Any],
        interface: Mapping[str, Any],
    ) -> InterfaceReply:
        """Send a round's failure profile and the interface that was shown in it.

        Every service evolves the run's interface from them. All are asked at once; when one has
        answered, the others have PROFILE_GRACE_S more.

        Raises:
            EnvironmentFault: No service took it, or two made different interfaces of it.
        """
        body = {"profile": profile, "config": config, "interface": interface}
        answers, faults = await self._ask_all("PUT", f"/runs/{run_id}/profile", body)
        if not answers:
            raise EnvironmentFault(_all_of("no environment service took the profile", faults))
        for url, missed in faults.items():
            self._addresses.leave_out(url)
            logger.warning(
                "the environment service at %s did not take the profile; until it takes a later "
                "one, its episodes see an older learning interface: %s",
                url,
                missed,
            )
        if len({data["content_hash"] for data in answers.values()}) > 1:
            made = ", ".join(f"{answers[url]['content_hash']} at {url}" for url in sorted(answers))
            raise EnvironmentFault(
                f"the environment services made different interfaces of one profile ({made}); "
                "start all of them anew, from the same version of the project"
            )
        data = next(iter(answers.values()))
        return InterfaceReply(**{**data, "active": tuple(data["active"])})

    async def _ask_all(
        self, method: str, path: str, body: Any
    ) -> tuple[dict[str, dict[str, Any]], dict[str, EnvironmentFault]]:
        """Ask all services at once; once one has answered, the others have PROFILE_GRACE_S more.

        Returns:
            By address: the answers, and what became of the services that gave none.
        """
        answers: dict[str, dict[str, Any]] = {}
        silence = EnvironmentFault("no answer while another service gave one")
        faults = dict.fromkeys(self._addresses.urls, silence)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(None) as grace:

                async def ask(url: str) -> None:
                    try:
                        answers[url] = await self._ask(url, method, path, body)
                    except EnvironmentFault as fault:
                        faults[url] = fault
                        return
                    del faults[url]
                    grace.reschedule(asyncio.get_running_loop().time() + PROFILE_GRACE_S)

                await asyncio.gather(*map(ask, self._addresses.urls))
        return answers, faults

    async def _create_somewhere(self, instance_id: str, body: Any) -> dict[str, Any]:
        """Ask one address after the other until one takes the episode."""
        faults: dict[str, EnvironmentFault] = {}
        while (url := self._addresses.place(instance_id, faults)) is not None:
            try:
                return await self._ask_living(url, "/create", body)
            except (_NoAnswer, _NotNow, _Full) as fault:
                faults[url] = fault
        full = any(isinstance(fault, _Full) for fault in faults.values())
        kind = _Full if full else EnvironmentFault
        raise kind(_all_of("no environment service takes the episode", faults))

    async def _post(self, path: str, instance_id: str, **fields: Any) -> dict[str, Any]:
        """Ask the service that an episode lives at."""
        url = self._addresses.home(instance_id)
        if url is None:
            raise EnvironmentFault(f"{path}: this client has no live instance {instance_id!r}")
        return await self._ask_living(url, path, self._body(instance_id, **fields))

    def _body(self, instance_id: str, **fields: Any) -> dict[str, Any]:
        return {"env_type": self._env_type, "instance_id": instance_id, **fields}

    async def _ask_living(self, url: str, path: str, body: Any) -> dict[str, Any]:
        """Ask on behalf of an episode; an address that does not answer is left out from then on."""
        try:
            return await self._ask(url, "POST", path, body)
        except _NoAnswer as fault:
            if self._addresses.leave_out(url):
                logger.warning(
                    "%s New episodes go to other addresses, if there are any, and to %s again in "
                    "%.0f s",
                    fault,
                    url,
                    COOL_DOWN_S,
                )
            raise

    async def _ask(self, url: str, method: str, path: str, body: Any = None) -> dict[str, Any]:
        retrying = tenacity.AsyncRetrying(
            stop=tenacity.stop_after_attempt(self._attempts),
            wait=tenacity.wait_exponential_jitter(multiplier=0.2, max=5.0),
            retry=tenacity.retry_if_exception_type((httpx.TransportError, _NotNow)),
            sleep=asyncio.sleep,
            reraise=True,
        )
        try:
            data: dict[str, Any] = await retrying(self._ask_once, url, method, path, body)
        except httpx.TransportError as error:
            raise _NoAnswer(
                f"no answer from the environment service at {url}{path} "
                f"({type(error).__name__}, {self._attempts} attempts); is it running?"
            ) from error
        return data

    async def _ask_once(self, url: str, method: str, path: str, body: Any) -> dict[str, Any]:
        response = await self._http[url].request(method, path, json=body)
        if self._addresses.take_back(url):
            logger.warning("the environment service at %s answers again", url)
        try:
            answer = response.json()
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            answer = {}
        if response.is_success and answer.get("success") is True:
            data = answer.get("data")
            return data if isinstance(data, dict) else {}
        raise self._fault(f"{url}{path}", response.status_code, answer.get("error"))

    def _fault(self, where: str, status: int, error: Any) -> EnvironmentFault:
        """What an answer that is no success means."""
        error = error if isinstance(error, dict) else {}
        code = error.get("code", "no code")
        said = (
            f"the environment service at {where} answered {status} ({code}): "
            f"{error.get('message', 'no message')}"
        )
        match status, code:
            case 401, _:
                wants = "another token than it was sent" if self._token else "an access token"
                return EnvironmentFault(
                    f"{said}; it wants {wants}: set env_service.token_file to a file that holds "
                    f"it, or {TOKEN_VARIABLE} to the token itself"
                )
            case (503, _) | (409, "instance_busy"):
                return _NotNow(said)
            case 429, "too_many_episodes":
                return _Full(said)
        return EnvironmentFault(said)


def _all_of(what: str, faults: Mapping[str, EnvironmentFault]) -> str:
    """The faults of all addresses in one sentence; of one address, its own."""
    said = "; ".join(str(faults[url]) for url in sorted(faults))
    return said if len(faults) == 1 else f"{what}: {said}"
