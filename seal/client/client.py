"""Async client of environment services: the bodies of `seal.wire` over HTTP.

It does not lead the dialogue (`seal.client.episode`) and does not decide what a fault means
for training. `seal.client.addresses` chooses the service of an episode. The transport can be
replaced, so tests need no socket.
"""

import asyncio
import contextlib
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import tenacity
from httpx_aiohttp import AiohttpTransport

from seal import wire
from seal.client.access_token import TOKEN_VARIABLE
from seal.client.addresses import COOL_DOWN_S, Addresses, url_list
from seal.wire import (
    PROTOCOL_VERSION,
    CreateReply,
    Data,
    EvaluateReply,
    ExitStatus,
    InterfaceReply,
    Message,
    Mode,
    StepReply,
    UnreadableMessage,
    from_json,
    request_json,
)

logger = logging.getLogger(__name__)

FULL_WAIT_S = 60.0
"""Seconds that a new episode waits, all pauses together, while every service is full."""
PROFILE_GRACE_S = 5.0
"""Seconds that the other services have for a profile after one has taken it."""
CONNECTIONS = 32
"""Connections to one address; further requests wait for one."""


@dataclass(frozen=True)
class Task:
    """A task to open, and how it is shown."""

    task_id: str
    """Task of the environment, e.g. multi_turn_base_17."""
    mode: Mode
    """Mode "train" shows the run's learning interface, "eval" the untouched benchmark."""
    run_id: str
    """The run whose interface mode "train" shows."""
    interface_version: int | None
    """Version of that interface; None for the newest."""
    tool_format: str
    """How the policy writes tool calls (seal.formats)."""
    show_interface: bool = True
    """False: mode "train" shows no interface."""
    unreadable_message: UnreadableMessage = "ends_turn"
    """What a message does whose calls cannot be read."""


class EnvironmentFault(Exception):
    """The service failed or could not be reached: not the model's fault, and never a reward."""


class _NoAnswer(EnvironmentFault):
    """All attempts of a request got no answer."""


class _NotNow(EnvironmentFault):
    """An answer that says to ask again: 503, or the instance still works on the same request."""


class _Full(EnvironmentFault):
    """The service has as many live episodes as it accepts."""


class EnvironmentClient(contextlib.AbstractAsyncContextManager["EnvironmentClient"]):
    """One or several equal services, any number of concurrent episodes.

    New episodes are spread over the services and stay where they were created. A service that does
    not answer gets no new episodes for a while. Each of its live episodes fails, and the caller may
    start it again.

    Args:
        urls: Base address, e.g. http://127.0.0.1:8082, or several.
        env_type: Name of the environment on these services, e.g. bfcl.
        token: Access token, for services that need one.
        timeout_s: Seconds that one request may take.
        attempts: How often a request is sent if it gets no answer or the answer "not now".
            Repeating is safe: the service answers a repeated step, and a repeated /create before
            the first step, from its record. Every other request has no effect that repeating
            changes.
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
        # One pool for each address: requests to a dead address must not delay those to the others.
        self._http = {
            # trust_env=False: requests to a local service must not go through a proxy.
            url: httpx.AsyncClient(
                base_url=url,
                headers=None if token is None else {"Authorization": f"Bearer {token}"},
                timeout=httpx.Timeout(timeout_s, connect=min(timeout_s, 5.0)),
                # aiohttp takes a third of the processor time of httpx's own transport.
                transport=transport
                or AiohttpTransport(
                    limits=httpx.Limits(max_connections=CONNECTIONS), trust_env=False
                ),
                trust_env=False,
            )
            for url in self._addresses.urls
        }

    async def __aexit__(self, *raised: object) -> None:
        for http in self._http.values():
            await http.aclose()

    async def health(self) -> dict[str, dict[str, str]]:
        """Check that every service is healthy, speaks this protocol and accepts our token.

        Returns:
            For each address the pools of tasks that it plays: name -> hash of the file.

        Raises:
            EnvironmentFault: A service does not answer, is not healthy, does not serve our
                environment, has another protocol version, or needs a token.
        """
        pools: dict[str, dict[str, str]] = {}
        for url in self._addresses.urls:
            data = await self._ask(url, "GET", "/healthz")  # of any version, so not yet decoded
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
            # /healthz needs no token. This route needs one, changes nothing and works for any run.
            await self._ask(url, "GET", "/runs/health/interface")
            played = data.get("tasks_sha256")
            # An environment without pools, and other versions of the service, need not say it.
            pools[url] = played if isinstance(played, dict) else {}
        return pools

    async def create(self, instance_id: str, task: Task) -> CreateReply:
        """Open an episode; its tool docs come as structured data.

        Raises:
            EnvironmentFault: No service answers, all stay full for FULL_WAIT_S, or one refuses.
        """
        params = wire.CreateParams(
            mode=task.mode,
            run_id=task.run_id,
            interface_version=task.interface_version,
            show_interface=task.show_interface,
            unreadable_message=task.unreadable_message,
            tool_format=task.tool_format,
            tools="structured",
        )
        body = self._body(wire.CreateRequest, instance_id, task_id=task.task_id, params=params)
        retrying = tenacity.AsyncRetrying(
            # The pauses alone: the requests have time limits of their own.
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
            self._addresses.forget(instance_id)  # an episode that never began is not live
            raise
        return _read(CreateReply, data)

    async def step(self, instance_id: str, number: int, message: Message) -> StepReply:
        """Send assistant message `number` (from 0) and get what follows it."""
        params = wire.StepParams(step=number)
        data = await self._post(
            "/step", wire.StepRequest, instance_id, messages=message, params=params
        )
        return _read(StepReply, data)

    async def evaluate(self, instance_id: str, exit_status: ExitStatus) -> EvaluateReply:
        """Verdict and labels of an episode that has ended, and why it has."""
        params = wire.EvaluateParams(exit_status=exit_status)
        data = await self._post("/evaluate", wire.EvaluateRequest, instance_id, params=params)
        return _read(EvaluateReply, data)

    async def release(self, instance_id: str) -> None:
        """Forget the episode."""
        try:
            await self._post("/release", wire.Request, instance_id)
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

        Every service evolves the run's interface from them. All are asked at once; once one has
        answered, the others have PROFILE_GRACE_S more.

        Raises:
            EnvironmentFault: No service took it, or two made different interfaces of it.
        """
        body = wire.ProfileUpdate(
            profile=dict(profile), config=dict(config), interface=dict(interface)
        )
        path = f"/runs/{run_id}/profile"
        answers, faults = await self._ask_all("PUT", path, request_json(body))
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
        hashes = {url: answers[url]["content_hash"] for url in sorted(answers)}
        if len(set(hashes.values())) > 1:
            listed = ", ".join(f"{content} at {url}" for url, content in hashes.items())
            raise EnvironmentFault(
                f"the environment services made different interfaces of one profile ({listed}); "
                "start all of them anew, from the same version of the project"
            )
        return _read(InterfaceReply, next(iter(answers.values())))

    async def _ask_all(
        self, method: str, path: str, body: Any
    ) -> tuple[dict[str, dict[str, Any]], dict[str, EnvironmentFault]]:
        """Ask all services at once; each answer gives the others PROFILE_GRACE_S more.

        Returns:
            By address: the answers, and the faults of the services without an answer.
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

    async def _post(
        self, path: str, kind: type[wire.Request], instance_id: str, **fields: Any
    ) -> dict[str, Any]:
        """Ask the service where an episode lives."""
        url = self._addresses.home(instance_id)
        if url is None:
            raise EnvironmentFault(f"{path}: this client has no live instance {instance_id!r}")
        return await self._ask_living(url, path, self._body(kind, instance_id, **fields))

    def _body(self, kind: type[wire.Request], instance_id: str, **fields: Any) -> dict[str, Any]:
        return request_json(kind(env_type=self._env_type, instance_id=instance_id, **fields))

    async def _ask_living(self, url: str, path: str, body: Any) -> dict[str, Any]:
        """Ask on behalf of an episode; an address that does not answer is then left out."""
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
        """What an unsuccessful answer means."""
        error = error if isinstance(error, dict) else {}
        code = error.get("code", "no code")
        answer = (
            f"the environment service at {where} answered {status} ({code}): "
            f"{error.get('message', 'no message')}"
        )
        match status, code:
            case 401, _:
                wants = "another token than it was sent" if self._token else "an access token"
                return EnvironmentFault(
                    f"{answer}; it wants {wants}: set env_service.token_file to a file that holds "
                    f"it, or {TOKEN_VARIABLE} to the token itself"
                )
            case (503, _) | (409, "instance_busy"):
                return _NotNow(answer)
            case 429, "too_many_episodes":
                return _Full(answer)
        return EnvironmentFault(answer)


def _all_of(what: str, faults: Mapping[str, EnvironmentFault]) -> str:
    """The faults of all addresses in one sentence; of one address, its own."""
    listed = "; ".join(str(faults[url]) for url in sorted(faults))
    return listed if len(faults) == 1 else f"{what}: {listed}"


def _read(kind: type[Data], data: Mapping[str, Any]) -> Data:
    """The data of an answer.

    Raises:
        EnvironmentFault: A field is missing, or a label is none that this version knows.
    """
    try:
        return from_json(kind, data)
    except (TypeError, ValueError) as error:
        raise EnvironmentFault(
            f"the environment service's {kind.__name__} cannot be read: {error}; start the service "
            "from the same version of the project"
        ) from error
