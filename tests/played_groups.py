"""A trainer's sampling with everything real but the dialogues: for tests of replay and refill.

verl's loader, verl's submission of prompts, verl's agent loop worker and its bookkeeping in a real
TransferQueue (on a small Ray). Only what a rollout earns comes from a script.
"""

import asyncio
import copy
import functools
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import datasets
import pytest
import ray
import transfer_queue as tq
from omegaconf import DictConfig, OmegaConf
from tensordict import TensorDict
from transfer_queue import KVBatchMeta
from verl.experimental.agent_loop.agent_loop import AgentLoopMetrics, AgentLoopOutput
from verl.trainer.ppo.v1.agent_loop_tq import AgentLoopWorkerTQ

from seal.client.client import EnvironmentFault
from seal.launch.recipe import EXP, load_recipe
from seal.settings.sections import read_settings
from seal.train.state import LoopState
from seal.train.trainer import SealTrainer

Script = Callable[[str, int], float | None]
"""Task id and session -> the reward of the rollout; None: the environment fails it."""
ROWS = EXP.parent / "data/quickstart_train.parquet"
"""32 tasks."""


@contextmanager
def real_queue() -> Iterator[None]:
    """TransferQueue in this process, on a Ray of its own."""
    ray.init(
        num_cpus=4,
        address="local",
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100_000_000,
    )
    storage = {"backend": {"SimpleStorage": {"num_data_storage_units": 1}}}
    tq.init(OmegaConf.create(storage))
    try:
        yield
    finally:
        tq.close()
        ray.shutdown()


class ScriptedWorker(AgentLoopWorkerTQ.__ray_metadata__.modified_class):  # type: ignore[misc]
    """verl's worker, which a rollout asks for its reward instead of playing it."""

    def __init__(self, config: Any, script: Script) -> None:
        self.config, self.script = config, script
        self.background_tasks: set[asyncio.Task[None]] = set()
        self.processor = self.reward_loop_worker_handles = None
        self.distillation_enabled = False

    async def _run_agent_loop(
        self,
        sampling_params: dict[str, Any],
        trajectory: dict[str, Any],
        *,
        agent_name: str,
        trace: bool = True,
        **kwargs: Any,
    ) -> None:
        reward = self.script(kwargs["extra_info"]["task_id"], kwargs["session_id"])
        await asyncio.sleep(0)
        if reward is None:
            raise EnvironmentFault("the service is gone")
        output = AgentLoopOutput(
            prompt_ids=[1, 2],
            response_ids=[3],
            response_mask=[1],
            reward_score=reward,
            num_turns=1,
            metrics=AgentLoopMetrics(),
            extra_fields={"reward_extra_info": {}},
        )
        await self._agent_loop_postprocess(output, trajectory["validate"], **kwargs)


class Rollouts:
    """What the trainer takes for verl's manager of agent loops; it plays beside the test."""

    def __init__(self, config: Any, script: Script) -> None:
        self.submitted: list[str] = []
        """Task of each prompt, in order."""
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self._worker = ScriptedWorker(config, script)

    def generate_sequences(self, prompts: TensorDict) -> None:
        """Begin the rollouts of these prompts."""
        self.submitted += [row["task_id"] for row in prompts["extra_info"]]
        playing = self._worker.generate_sequences(prompts)
        asyncio.run_coroutine_threadsafe(playing, self._loop).result()

    def stop(self) -> None:
        """End, once every rollout has ended."""

        async def rest() -> None:
            await asyncio.gather(*self._worker.background_tasks)

        asyncio.run_coroutine_threadsafe(rest(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


REAL_ALONE = (
    *(f"data.train_files={ROWS}", "data.synthetic_tasks=null", "data.synthetic_share=0.0"),
    "data.synthetic_refresh=null",
)


@functools.cache
def _recipe(overrides: tuple[str, ...]) -> DictConfig:
    return load_recipe(EXP / "quickstart.yaml", [*REAL_ALONE, *overrides])


class Sampling:
    """A SealTrainer as far as its batches go.

    Args:
        script: What the rollouts earn.
        folder: For the cache of the data set.
        overrides: Of exp/quickstart.yaml.
        state: What `state` gave, of a checkpoint; None for a new run.
    """

    def __init__(
        self, script: Script, folder: Path, overrides: Sequence[str] = (), state: Any = None
    ) -> None:
        config = copy.deepcopy(_recipe(tuple(overrides)))
        config.data.val_files = str(ROWS)
        OmegaConf.set_struct(config, True)
        made: Any = SealTrainer.__new__(SealTrainer)
        made.config, made.tokenizer, made.processor = config, None, None
        made.trainer_mode, made.parameter_sync_step, made.global_steps = "sync", 1, 0
        made._settings, made._state = read_settings(config), LoopState()
        made.replay_buffer = made._build_replay_buffer()
        with pytest.MonkeyPatch.context() as patched:
            patched.setattr(datasets.config, "HF_DATASETS_CACHE", folder)
            made._init_dataloader()
        if state is not None:
            loader, loop = state
            made.train_dataloader.load_state_dict(loader)
            made._state = LoopState.from_json(json.loads(loop))
        self.rollouts = made.agent_loop_manager = Rollouts(config, script)
        self.trainer = made
        self.batch_size = int(config.data.train_batch_size)
        self.group_size = int(config.actor_rollout_ref.rollout.n)

    def step(self) -> tuple[KVBatchMeta, dict[str, Any]]:
        """The batch of the next step, in the order of verl's `step`."""
        self.trainer.global_steps += 1
        self.trainer.prepare_step()
        sampled: tuple[KVBatchMeta, dict[str, Any]] = self.trainer.replay_buffer.sample(
            self.trainer.global_steps, "train", self.batch_size
        )
        return sampled

    def trained(self) -> tuple[list[str], dict[str, Any]]:
        """Task of each group of the next batch, which leaves the queue as after a step."""
        batch, metrics = self.step()
        data = tq.kv_batch_get(
            keys=batch.keys, partition_id="train", select_fields=["uid", "extra_info"]
        )
        groups: dict[str, list[str]] = {}
        for uid, row in zip(data.pop("uid").tolist(), data.pop("extra_info").tolist(), strict=True):
            groups.setdefault(uid, []).append(row["task_id"])
        assert all(len(group) == self.group_size for group in groups.values())
        tq.kv_clear(keys=batch.keys, partition_id="train")
        return [tasks[0] for tasks in groups.values()], metrics

    def state(self) -> Any:
        """What a checkpoint has: verl's data.pt, and the loop's state as text."""
        loader = self.trainer.train_dataloader.state_dict()
        return loader, json.dumps(self.trainer._state.to_json())


def left() -> dict[str, Any]:
    """What is in the queue."""
    return {name: items for name, items in (tq.kv_list() or {}).items() if items}


@contextmanager
def sampling(
    script: Script, folder: Path, *overrides: str, state: Any = None
) -> Iterator[Sampling]:
    """A `Sampling` whose rollouts end, and leave nothing in the queue."""
    made = Sampling(script, folder, overrides, state)
    try:
        yield made
    finally:
        made.rollouts.stop()
        for partition, items in left().items():
            tq.kv_clear(keys=list(items), partition_id=partition)
