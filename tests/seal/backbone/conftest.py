"""verl, imported before the tests do: what it warns of while it is imported is no error here."""

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import verl.trainer.ppo.v1  # noqa: F401
