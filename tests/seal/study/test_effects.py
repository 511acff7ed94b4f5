"""Main effects and interaction: planted in made-up runs, and by their formulas."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from study_material import compose, drawn, write_run

from seal.study import pages
from seal.study.definition import INTERACTION, Factorial, Study
from seal.study.effects import effects
from seal.study.launching import read_runs
from seal.study.report import report

DESIGN = Factorial(("cues", "weights"), "vanilla", "cued", "weighted", "seal")
STUDY = Study(
    name="made",
    conf=Path("exp/made.yaml"),
    baseline="vanilla",
    recipes={name: () for name in (*DESIGN.cells, "placebo")},
    seeds=(1, 2, 3, 4),
    suites=("fixed",),
    factorial=DESIGN,
)
TASKS = 24
PLANTED = {"cues": -0.2, "weights": 0.1, INTERACTION: 0.0}
SHARES = arrays(np.float64, (4, 3, 5), elements=st.floats(0, 1))


def lifts(planted: Mapping[str, float]) -> dict[str, float]:
    """What each recipe adds to the baseline's rates if the effects are these."""
    cues, weights, both = (planted[name] for name in ("cues", "weights", INTERACTION))
    return {
        "vanilla": 0.0,
        # A main effect is the mean over both levels of the other factor.
        "cued": cues - both / 2,
        "weighted": weights - both / 2,
        "seal": cues + weights,
        "placebo": 0.0,
    }


def write_study(root: Path, planted: Mapping[str, float], without: tuple[str, ...] = ()) -> None:
    """Runs with planted effects; runs whose name ends as named have not begun."""
    for place, (recipe, seed) in enumerate(STUDY.runs()):
        rates = [0.4 + 0.008 * task + lifts(planted)[recipe] for task in range(TASKS)]
        scores = {2: {"fixed": drawn(rates, rollouts=32, seed=place)}}
        write_run(root, STUDY.run_name(recipe, seed), seed, scores)
        if f"{recipe}-s{seed}".endswith(without):
            shutil.rmtree(root / "launcher_record" / STUDY.run_name(recipe, seed))


def made(root: Path) -> dict[str, Any]:
    found = report(STUDY, read_runs(root, STUDY), {}, {}, compose)
    return dict(json.loads(json.dumps(found)))


def of_suite(document: dict[str, Any]) -> dict[str, Any]:
    (found,) = document["suites"]["fixed"]["factorial"]
    return dict(found)


@pytest.mark.parametrize(
    "planted", [PLANTED, {"cues": 0.1, "weights": 0.0, INTERACTION: 0.2}], ids=["added", "joint"]
)
def test_planted_effects_are_found_with_their_sign_and_size(
    tmp_path: Path, planted: dict[str, float]
) -> None:
    write_study(tmp_path, planted)
    found = of_suite(made(tmp_path))
    assert (found["tasks"], found["step_rule"], found["seeds"]) == ("all", "last", [1, 2, 3, 4])
    assert list(found["effects"]) == ["cues", "weights", INTERACTION]
    for name, size in planted.items():
        estimate = found["effects"][name]
        assert estimate["value"] == pytest.approx(size, abs=0.05)
        assert estimate["low"] < size < estimate["high"]
        assert (estimate["seeds"], estimate["tasks"]) == (4, TASKS)
        # What was planted is told from what was not.
        assert (estimate["low"] > 0 or estimate["high"] < 0) == (size != 0)


def test_an_effect_is_the_difference_of_its_recipes_means(tmp_path: Path) -> None:
    write_study(tmp_path, PLANTED)
    document = made(tmp_path)
    mean = {one["recipe"]: one["mean"]["value"] for one in document["suites"]["fixed"]["figures"]}
    with_cues, without = (mean["seal"], mean["cued"]), (mean["weighted"], mean["vanilla"])
    found = {name: one["value"] for name, one in of_suite(document)["effects"].items()}
    assert found["cues"] == pytest.approx((sum(with_cues) - sum(without)) / 2)
    assert found[INTERACTION] == pytest.approx(
        mean["seal"] - mean["weighted"] - mean["cued"] + mean["vanilla"]
    )


@settings(deadline=None)
@given(SHARES)
def test_effects_and_the_baseline_make_up_every_recipe(shares: Any) -> None:
    scores = dict(zip(DESIGN.cells, shares, strict=True))
    found = effects(DESIGN, scores)
    cues, weights, both = (found[name] for name in ("cues", "weights", INTERACTION))
    neither = scores["vanilla"]
    np.testing.assert_allclose(neither + cues - both / 2, scores["cued"], atol=1e-12)
    np.testing.assert_allclose(neither + weights - both / 2, scores["weighted"], atol=1e-12)
    np.testing.assert_allclose(neither + cues + weights, scores["seal"], atol=1e-12)
    assert abs(cues).max() <= 1 and abs(weights).max() <= 1 and abs(both).max() <= 2


def test_the_page_names_the_cells_and_the_effects(tmp_path: Path) -> None:
    write_study(tmp_path, PLANTED, without=("weighted-s2",))
    document = made(tmp_path)
    lines = pages.page(document).splitlines()
    assert any("`cued` has cues alone, `weighted` has weights alone" in line for line in lines)
    cues = of_suite(document)["effects"]["cues"]
    points = f"{100 * cues['value']:+.1f} ({100 * cues['low']:+.1f} to {100 * cues['high']:+.1f})"
    # Paired: a seed without one of the four runs is left out of all of them.
    assert f"| main effect of cues | {points} on seeds 1, 3, 4 |" in lines
    assert any(line.startswith("| interaction | ") for line in lines)
    assert len([line for line in lines if line.startswith("| main effect of ")]) == 2


@pytest.mark.parametrize(
    ("without", "why"),
    [
        (("weighted-s1", "weighted-s2", "weighted-s3", "weighted-s4"), "no run of weighted has "),
        (
            ("weighted-s1", "weighted-s2", "cued-s3", "cued-s4"),
            "vanilla, cued, weighted, seal have no seed in common yet",
        ),
    ],
)
def test_a_study_without_a_cell_says_so(tmp_path: Path, without: tuple[str, ...], why: str) -> None:
    write_study(tmp_path, PLANTED, without)
    document = made(tmp_path)
    assert document["suites"]["fixed"]["factorial"] == []
    page = pages.page(document)
    assert f"- main effects and interaction of cues and weights are not reported: {why}" in page
    assert "| main effect of" not in page


def test_a_recipe_outside_the_design_may_be_missing(tmp_path: Path) -> None:
    write_study(tmp_path, PLANTED, without=tuple(f"placebo-s{seed}" for seed in STUDY.seeds))
    document = made(tmp_path)
    assert of_suite(document)["seeds"] == [1, 2, 3, 4]
    assert not any("main effects" in note for note in document["notes"])
