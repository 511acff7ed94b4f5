"""Comparing recipes over seeds (scripts/compare.py).

A study names recipes and seeds (`definition`). Each pair is an ordinary launch (`launching`,
`launch_log`), whose logs are read back (`logs`). Runs that may not be compared are refused
(`comparable`). Scores become estimates with intervals (`scores`, `suite_figures`, `intervals`; two
parts of a method: `effects`), and these become a report (`report`, `pages`, `figures`). `power`
says before a study runs what it could show.
"""
