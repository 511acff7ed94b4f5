"""Which suites a validation plays.

In: the recipe and verl's loader of the validation data. Out: the loader of one validation. Suites
that `seal.rare_suites` names are played before the first step and after the last one alone: a
hundred held-out tasks take longer than many steps, and only the suite that the best checkpoint is
chosen by has to be played in between. Called by the trainer.
"""

from typing import Any

from omegaconf import DictConfig
from torch.utils.data import DataLoader, Subset


class SuiteError(Exception):
    """The recipe's suites do not fit its best metric; the message says which."""


def check_possible(config: DictConfig) -> None:
    """Refuse a recipe whose best checkpoint could not be told.

    Raises:
        SuiteError: `seal.best_metric` is of a rare suite.
    """
    # A name without a suite is for the first validation to refuse, which knows all metrics.
    suite = str(config.seal.best_metric).partition("/")[2].partition("/")[0]
    if suite in config.seal.rare_suites:
        raise SuiteError(
            f"seal.best_metric={config.seal.best_metric!r} is of a suite in seal.rare_suites, "
            "which is not played while training goes on; name another metric or take the suite out"
        )


def without(loader: Any, rare: list[str]) -> Any:
    """A loader of the rows of all other suites, in one batch.

    Args:
        loader: verl's loader of the validation data.
        rare: Suites to leave out; a name that no row has leaves out nothing.
    """
    if not rare:
        return loader
    infos = loader.dataset.dataframe["extra_info"]
    kept = [index for index, info in enumerate(infos) if info["suite"] not in rare]
    return DataLoader(
        Subset(loader.dataset, kept), batch_size=max(1, len(kept)), collate_fn=loader.collate_fn
    )
