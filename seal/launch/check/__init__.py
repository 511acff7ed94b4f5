"""Whether a run can start: the checks in front of every run, and those of `launcher.py --check`.

In: a resolved recipe, the facts about the machine (`machine`) and about the model (`model`), each
read once. Out: findings (`finding`), each one a sentence with what to do. A check is a function of
these three, a few lines long; `before_start` has the list of them, `whole` those that take longer.
Neither torch nor verl is imported: what has to import them is a process of its own.
"""
