"""Whether a run can start: the checks before every run, and those of `launcher.py --check`.

In: a resolved recipe, the facts about the machine (`machine`) and about the model (`model`), each
read once. Out: findings (`finding`), each one a sentence with advice. A check is a short function
of these three. `before_start` lists the fast checks, `whole` has the slow ones. These modules do
not import torch or verl; code that needs them runs in a separate process (`programs`).
"""
