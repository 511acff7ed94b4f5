"""Demonstrations: reference programs of training tasks, played through an episode.

In: training tasks. Out: one JSON line a dialogue, with every message as the environment gave or
took it and a mark on those to learn. `tempted` makes a clone that GRPO can improve, for the tiny
policy; `exact` teaches a language model the benchmark's manners. Called by scripts, through
`__main__`.

This is the one place where a reference leaves the environment, and only for training tasks.
"""
