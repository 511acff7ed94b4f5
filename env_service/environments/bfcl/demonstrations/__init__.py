"""Demonstrations: reference programs of training tasks, played through an episode.

In: training tasks. Out: one JSON line for each dialogue, with every message as the environment sent
or received it; a flag marks the messages to learn. `tempted` is for the tiny policy: its clone
leaves GRPO something to improve. `exact` teaches a language model the benchmark's conventions.

Only here does a reference leave the environment, and only for training tasks.
"""
