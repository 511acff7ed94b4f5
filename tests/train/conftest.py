"""Imports verl before the tests do: what it warns of while it is imported is not our affair."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.trainer.ppo.v1  # noqa: F401
