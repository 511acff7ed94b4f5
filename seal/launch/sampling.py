"""Settings of verl's sampling that do not act in this project, or that would let a step never end.

In: a resolved recipe. Out: a sentence for each such setting. `seal.launch.recipe` refuses the
recipe. `seal.train.replay` has the buffer that the others reach.
"""

from collections.abc import Iterator, Mapping
from typing import Any

from omegaconf import DictConfig, OmegaConf

_OF_OTHER_TRAINERS: Mapping[str, Any] = {
    "trainer.v1.sampler.max_off_policy_threshold": 8,
    "trainer.v1.sampler.max_off_policy_strategy": "drop",
    "trainer.v1.sampler.sampler_kwargs": {},
    "trainer.v1.sampler.custom_sampler.path": None,
    "trainer.v1.sampler.custom_sampler.name": None,
}
"""verl's values of settings that a synchronous trainer with a buffer of its own does not read."""
_OF_THE_FILTER: Mapping[str, Any] = {
    "algorithm.filter_groups.max_num_gen_batches": 0,
    "algorithm.filter_groups.max_inflight_gen_batches": 1,
}
"""verl's values of settings that act with `algorithm.filter_groups.enable` alone."""


def refused_settings(recipe: DictConfig) -> Iterator[str]:
    """What is wrong with the recipe's settings of sampling, one sentence each."""
    for key, value in _OF_OTHER_TRAINERS.items():
        if (given := _at(recipe, key)) != value:
            yield f"{key}={given} does not act in this trainer; leave it at {_written(value)}"
    if not recipe.trainer.v1.sampler.sync_refill_failed_groups:
        yield (
            "trainer.v1.sampler.sync_refill_failed_groups=false does not act: a group that lost "
            "rollouts is always replaced; leave it at true"
        )
    if (size := recipe.data.gen_batch_size) not in (None, 1):
        yield (
            f"data.gen_batch_size={size} does not act: prompts are fetched one by one, so that any "
            "number of groups can be replaced; leave it at null"
        )
    yield from _filtering(recipe)


def _filtering(recipe: DictConfig) -> Iterator[str]:
    filtering = recipe.algorithm.filter_groups
    if filtering.metric != "reward":
        yield (
            f"algorithm.filter_groups.metric={filtering.metric}: groups are filtered by the reward "
            "that advantages are made of; leave it at reward"
        )
    if not filtering.enable:
        for key, value in _OF_THE_FILTER.items():
            if (given := _at(recipe, key)) != value:
                yield (
                    f"{key}={given} does not act without algorithm.filter_groups.enable=true; "
                    f"leave it at {value}, or set that too"
                )
    elif filtering.max_num_gen_batches < 2:
        yield (
            f"algorithm.filter_groups.max_num_gen_batches={filtering.max_num_gen_batches}: a "
            "policy that always passes or always fails would be sampled without end (0), or "
            "nothing would be filtered (1); set 2 or more, as +method=filter_groups does"
        )


def _at(recipe: DictConfig, key: str) -> Any:
    value = OmegaConf.select(recipe, key)
    return OmegaConf.to_container(value) if isinstance(value, DictConfig) else value


def _written(value: Any) -> str:
    return "null" if value is None else str(value)
