"""Main effects and interaction of a 2 x 2 design, e.g. of interface and weights.

In: a study's `Factorial` and the scores of its four recipes, as matrices (seeds, tasks) with the
same seeds and tasks. Out: such a matrix for each effect, for `intervals.mean`. Pure functions.
"""

from collections.abc import Mapping

from seal.study.definition import INTERACTION, Factorial
from seal.study.intervals import Matrix


def effects(factorial: Factorial, scores: Mapping[str, Matrix]) -> dict[str, Matrix]:
    """What each part does in each seed and task, and what both do beyond their sum.

    With a part written 1 if it is on, and the other part as the second digit:

    * main effect of the first: ((11 - 01) + (10 - 00)) / 2, the mean of what it adds to the
      recipe without the second part and to the one with it;
    * main effect of the second: ((11 - 10) + (01 - 00)) / 2;
    * interaction: 11 - 01 - 10 + 00, what the first adds with the second minus what it adds
      without it. 0 if the effects add up.

    Args:
        factorial: The design.
        scores: Of each of its four recipes, by name: (seeds, tasks), shares from 0 to 1.

    Returns:
        By the factors' names and INTERACTION: (seeds, tasks), main effects from -1 to 1, the
        interaction from -2 to 2.

    >>> import numpy as np
    >>> design = Factorial(("interface", "weights"), "none", "cues", "rho", "all")
    >>> shares = {"none": 0.5, "cues": 0.375, "rho": 0.625, "all": 0.25}
    >>> added = effects(design, {name: np.full((1, 1), share) for name, share in shares.items()})
    >>> {name: float(matrix[0, 0]) for name, matrix in added.items()}
    {'interface': -0.25, 'weights': 0.0, 'interaction': -0.25}
    """
    neither, first, second, both = (scores[recipe] for recipe in factorial.cells)
    first_name, second_name = factorial.factors
    return {
        first_name: ((both - second) + (first - neither)) / 2,
        second_name: ((both - first) + (second - neither)) / 2,
        INTERACTION: both - second - first + neither,
    }
