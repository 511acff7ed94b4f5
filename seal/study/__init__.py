"""Comparing recipes over seeds: what scripts/compare.py does.

A study names recipes and seeds (`definition`). Each pair is an ordinary launch (`runs`), whose logs
are read back (`logs`). Runs that may not be compared are refused (`comparable`). Scores become
estimates with intervals (`scores`, `intervals`), and those a report (`report`, `pages`, `figures`).
`power` says before anything runs what a study could show.
"""
