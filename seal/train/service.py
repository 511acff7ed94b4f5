"""The environment service as the trainer uses it: its client, and the update of the interface.

In: the run's settings, and the loop's state with the failure profile C_t. Out: Omega_{t+1}, which
the service makes of both (paper section 3.3).
"""

import asyncio
import math
from dataclasses import asdict

from seal.coevolution.interface import Interface
from seal.environment.access_token import read_token
from seal.environment.client import EnvironmentClient
from seal.settings.sections import EnvService, Settings
from seal.train.state import LoopState
from seal.wire import InterfaceReply


class ForeignInterfaceError(Exception):
    """The environment service has other interface texts than the trainer."""


def service_client(settings: EnvService, *, attempts: int = 4) -> EnvironmentClient:
    """A client of the service that `env_service` of a recipe names."""
    token = read_token(settings.token_file)
    return EnvironmentClient(settings.env_url, settings.env_type, token=token, attempts=attempts)


def evolved_interface(settings: Settings, state: LoopState) -> InterfaceReply:
    """Omega_{t+1} = Evolve(Omega_t, C_t): send both to the service, which makes and keeps it.

    A service that is away is waited for `trainer.env_failure.wait_s`.

    Raises:
        EnvironmentFault: The service did not take the profile.
        ForeignInterfaceError: The service would show other texts than this trainer knows.
    """

    async def put() -> InterfaceReply:
        attempts = 5 + math.ceil(settings.trainer.env_failure.wait_s / 5.0)
        async with service_client(settings.env_service, attempts=attempts) as client:
            return await client.put_profile(
                settings.seal.run_id,
                state.profile.to_json(),
                asdict(settings.seal.interface),
                state.shown.to_json(),
            )

    reply = asyncio.run(put())
    if Interface.from_json(reply.interface).content_hash() != reply.content_hash:
        raise ForeignInterfaceError(
            "the environment service has other interface texts than this trainer: the counts "
            "of prompts and the records would be wrong. Run both from the same commit"
        )
    return reply
