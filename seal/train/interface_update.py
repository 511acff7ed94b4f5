"""The update of the learning interface: the trainer's one request to the environment service.

In: the run's settings, and the loop's state with the failure profile C_t. Out: Omega_{t+1}, which
the service makes of both (paper section 3.3).
"""

import asyncio
import math
from dataclasses import asdict

from seal.client.access_token import read_token
from seal.client.client import EnvironmentClient
from seal.coevolution.interface import Interface
from seal.settings.sections import Settings
from seal.train.errors import TrainingError
from seal.train.state import LoopState
from seal.wire import InterfaceReply


def evolved_interface(settings: Settings, state: LoopState) -> InterfaceReply:
    """Omega_{t+1} = Evolve(Omega_t, C_t): send both to the service, which makes and keeps it.

    A service that is away is waited for `trainer.env_failure.wait_s`.

    Raises:
        EnvironmentFault: The service did not take the profile.
        TrainingError: The service would show other texts than this trainer knows.
    """

    async def put() -> InterfaceReply:
        service, waited = settings.env_service, settings.trainer.env_failure.wait_s
        async with EnvironmentClient(
            service.env_url,
            service.env_type,
            token=read_token(service.token_file),
            attempts=5 + math.ceil(waited / 5.0),
        ) as client:
            return await client.put_profile(
                settings.seal.run_id,
                state.profile.to_json(),
                asdict(settings.seal.interface),
                state.shown.to_json(),
            )

    reply = asyncio.run(put())
    if Interface.from_json(reply.interface).content_hash() != reply.content_hash:
        raise TrainingError(
            "the environment service has other interface texts than this trainer: the counts "
            "of prompts and the records would be wrong. Run both from the same commit"
        )
    return reply
