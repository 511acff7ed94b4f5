"""Validations: their logs and evaluation files, and what is computed and shown of them.

A validation is one evaluation during training, or one by scripts/evaluate.py: they write the same
logs (`log`). scripts/stats_validation_bfcl.py reads those of one run (`files`), prints them
(`tables`) and draws them (`plot`); the figures are of `statistics` and `summary`. `metrics` are
those that a run writes of each validation. `evaluation_file` says what is played.
"""
