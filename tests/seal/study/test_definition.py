"""What a study file may hold, and what is said of one that may not be used."""

from pathlib import Path

import pytest

from seal.launch.recipe import load_recipe
from seal.study.definition import Factorial, StudyError, load_study

EXP = Path(__file__).resolve().parents[3] / "exp"
STUDY = """
conf: exp/quickstart.yaml
baseline: vanilla
recipes: {vanilla: [+method=vanilla], seal: []}
seeds: [1, 2]
suites: [fixed]
"""


def written(folder: Path, text: str, name: str = "tiny.yaml") -> Path:
    path = folder / name
    path.write_text(text)
    return path


def test_runs_go_seed_by_seed_those_of_recipes_with_all_seeds_first(tmp_path: Path) -> None:
    some = "{vanilla: [+method=vanilla], some: [a=2], seal: []}"
    text = STUDY.replace("{vanilla: [+method=vanilla], seal: []}", some)
    study = load_study(written(tmp_path, text + "overrides: [a=1]\nfewer_seeds: {some: [1]}\n"))
    whole = [("vanilla", 1), ("seal", 1), ("vanilla", 2), ("seal", 2)]
    assert study.runs() == [*whole, ("some", 1)]
    assert study.run_name("seal", 2) == "tiny-seal-s2"
    assert study.run_overrides("vanilla", 1) == ["a=1", "+method=vanilla", "seed=1"]
    assert study.options == ("--with-bfcl",)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("conf: exp/quickstart.yaml", "", "conf is missing"),
        ("suites: [fixed]", "suites: []", "suites is empty"),
        ("seeds: [1, 2]", "seeds: [1, 2]\ncontrasts: [[seal, grpo]]", "'grpo' is none of recipes"),
        ("seeds: [1, 2]", "seeds: [1, 2]\ncontrasts: [[seal, seal]]", "pairs of two recipes"),
        ("seeds: [1, 2]", "seeds: [1, 2]\ncontrasts: [seal]", "contrasts: expected a list"),
        ("suites: [fixed]", "suites: fixed", "suites: expected a list of texts, got 'fixed'"),
        ("seeds: [1, 2]", "seeds: [1, 1]", "a seed occurs twice"),
        ("seeds: [1, 2]", "seeds: [one]", "expected a list of whole numbers"),
        ("seeds: [1, 2]", "seeds: []", "expected a list of whole numbers"),
        ("baseline: vanilla", "baseline: grpo", "'grpo' is none of recipes: vanilla, seal"),
        ("seal: []", "no/slash: []", "'no/slash' names folders"),
        ("seal: []", "seal: {a: 1}", "expected a list of texts"),
        ("seeds: [1, 2]", "seeds: [1, 2]\nfewer_seeds: {seal: [3]}", "not in seeds"),
        ("seeds: [1, 2]", "seeds: [1, 2]\nfewer_seeds: {vanilla: [1]}", "baseline has to have"),
        ("seeds: [1, 2]", "seeds: [1, 2]\nseed: 3", "unknown key 'seed'; there are: conf"),
        *(
            ("suites: [fixed]", f"suites: [fixed]\nfactorial: {cells}", said)
            for cells, said in (
                ("[vanilla, seal]", "factorial: expected neither, both and the names of two"),
                ("{neither: vanilla, both: seal}", "two factors, .* got neither, both"),
                ("{neither: a, cues: b, rho: c}", "two factors, .* got neither, cues, rho"),
                ("{neither: a, cues: b, rho: c, x: d}", "got neither, cues, rho, x"),
                ("{neither: a, cues: b, interaction: c, both: d}", "cues, interaction, both"),
                ("{neither: a, cues: b, rho: c, x: d, both: e}", "cues, rho, x, both"),
                ("{neither: a, cues: b, rho: b, both: d}", "a recipe is in two cells: a, b, b, d"),
                ("{neither: vanilla, cues: b, rho: c, both: seal}", "'b' is none of recipes"),
            )
        ),
        ("conf: exp/quickstart.yaml", "conf: [", "is no YAML"),
        ("seeds: [1, 2]", "seeds: [1, 2]\ndeclared_step: '16'", "a whole number, got '16'"),
        ("seeds: [1, 2]", "seeds: [1, 2]\ndeclared_step: 1.5", "a whole number, got 1.5"),
        ("seeds: [1, 2]", "seeds: [1, 2]\nminutes: 8 min", "minutes: .* got '8 min'"),
        ("seeds: [1, 2]", "seeds: [1, 2]\ndevelopment: [a]", "development: expected a text"),
    ],
)
def test_a_bad_study_is_refused_in_a_sentence(
    tmp_path: Path, old: str, new: str, said: str
) -> None:
    assert old in STUDY
    with pytest.raises(StudyError, match=said) as refused:
        load_study(written(tmp_path, STUDY.replace(old, new)))
    assert "tiny.yaml" in str(refused.value)


def test_a_key_may_be_empty(tmp_path: Path) -> None:
    study = load_study(written(tmp_path, STUDY + "\ncontrasts:\nfewer_seeds:\nfactorial:\n"))
    assert (study.contrasts, study.fewer_seeds, study.factorial) == ((), {}, None)


def test_a_2_x_2_design_names_its_factors_and_cells(tmp_path: Path) -> None:
    text = STUDY.replace("seal: []", "seal: [], cues: [], rho: []")
    cells = "factorial: {both: seal, words: cues, neither: vanilla, weights: rho}\n"
    study = load_study(written(tmp_path, text + cells))
    assert study.factorial == Factorial(("words", "weights"), "vanilla", "cues", "rho", "seal")
    assert study.factorial.cells == ("vanilla", "cues", "rho", "seal")


@pytest.mark.parametrize("name", ["tiny", "paper_table3"])
def test_the_projects_2_x_2_designs_are_of_interface_and_weights(name: str) -> None:
    study = load_study(EXP / "study" / f"{name}.yaml")
    assert study.factorial is not None
    cells = ("neither", *study.factorial.factors, "both")
    on = {}
    for cell, recipe in zip(cells, study.factorial.cells, strict=True):
        seal = load_recipe(EXP.parent / study.conf, study.run_overrides(recipe, 1)).seal
        weighted = seal.weights.w_min < seal.weights.w_max
        cued = seal.interface.schema_cues or seal.interface.recovery_feedback
        on[cell] = (bool(cued), bool(weighted))
    assert on == {
        "neither": (False, False),
        "interface": (True, False),
        "weights": (False, True),
        "both": (True, True),
    }


def test_a_file_that_is_not_there_or_no_study_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="cannot be read: No such file"):
        load_study(tmp_path / "none.yaml")
    with pytest.raises(StudyError, match="is no study"):
        load_study(written(tmp_path, "- a\n"))


@pytest.mark.parametrize("path", sorted((EXP / "study").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_projects_studies_are_made_of_its_recipes(path: Path) -> None:
    study = load_study(path)
    overrides = study.run_overrides(study.baseline, 7)
    loaded = load_recipe(EXP.parent / study.conf, overrides)
    assert loaded.seed == loaded.data.seed == loaded.actor_rollout_ref.rollout.seed == 7
    # What each method changes is held by tests/seal/launch/test_recipe.py.
    every = [one for overrides in study.recipes.values() for one in overrides]
    named = [one for one in every if one.startswith("+method=")]
    assert named or all(one.startswith("data.synthetic_") for one in every)
    assert all((EXP / "method" / f"{one[8:]}.yaml").is_file() for one in named)
    # Other lines are keys of the recipe; an unknown one is refused.
    for recipe, own in study.recipes.items():
        if not set(own) <= set(named):
            load_recipe(EXP.parent / study.conf, study.run_overrides(recipe, 7))
