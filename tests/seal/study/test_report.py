"""A report on made-up runs with known answers."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from study_material import compose, drawn, told_apart, write_run

from seal.records.json_lines import LineReader, append_json_lines
from seal.records.log_archive import ARCHIVE, pack, plain_folder
from seal.study import figures, pages
from seal.study.definition import Study, StudyError
from seal.study.launch_log import LAUNCHES, Launches, read_launches
from seal.study.launching import keep_study, read_runs, study_folder
from seal.study.logs import keep
from seal.study.report import report

SEEDS = (1, 2, 3, 4)
STUDY = Study(
    name="made",
    conf=Path("exp/made.yaml"),
    baseline="vanilla",
    recipes={"vanilla": (), "seal": (), "placebo": ()},
    seeds=SEEDS,
    suites=("held_out",),
    declared_step=4,
    development="development",
)
TASKS = 30
BASE = [0.1 + 0.02 * number for number in range(TASKS)]
LIFT = {"vanilla": 0.0, "seal": 0.25, "placebo": 0.0}


def write_study(root: Path, **last: Any) -> None:
    """Runs in which "seal" is 25 points better and "placebo" is not."""
    for place, (recipe, seed) in enumerate(STUDY.runs()):
        rates = [rate + LIFT[recipe] for rate in BASE]
        scores = {
            step: {
                "held_out": drawn(rates, rollouts=4, seed=100 * place + step),
                # Step 2 is the best one there, in every run.
                "development": {"multi_turn_base_900": [float(step == 2)]},
            }
            for step in (0, 2, 4)
        }
        extra = last if place == len(STUDY.runs()) - 1 else {}
        write_run(root, STUDY.run_name(recipe, seed), seed, scores, rounds=4, **extra)


def made(root: Path, **options: Any) -> dict[str, Any]:
    return report(STUDY, read_runs(root, STUDY), {}, {}, compose, **options)


def figure(document: dict[str, Any], recipe: str, rule: str = "last") -> dict[str, Any]:
    found: list[dict[str, Any]] = [
        one
        for one in document["suites"]["held_out"]["figures"]
        if (one["recipe"], one["step_rule"], one["tasks"]) == (recipe, rule, "all")
    ]
    (figure,) = found
    return figure


def test_a_planted_difference_is_found_and_a_placebo_is_not(tmp_path: Path) -> None:
    write_study(tmp_path)
    document = made(tmp_path)
    assert document["complete"] and document["notes"] == []
    against = figure(document, "seal", "declared")["against_baseline"]
    difference = against["difference"]
    assert difference["excludes_zero"] and difference["low"] < 0.25 < difference["high"]
    assert against["probability_of_improvement"]["value"] > 0.6
    assert against["probability_of_improvement"]["low"] is None  # four seeds say too little
    assert difference["notable"] and difference["p_value_corrected"] < 0.01
    placebo = figure(document, "placebo", "declared")["against_baseline"]["difference"]
    assert not placebo["excludes_zero"] and placebo["low"] < 0 < placebo["high"]
    assert not placebo["notable"]
    assert "against_baseline" not in figure(document, "vanilla")
    # What is not primary is never marked.
    start = figure(document, "seal", "start")["against_baseline"]["difference"]
    assert start["excludes_zero"] and not start["notable"]


def test_steps_are_chosen_by_their_rules(tmp_path: Path) -> None:
    write_study(tmp_path)
    document = made(tmp_path)
    assert figure(document, "seal", "start")["steps"] == [0] * 4
    assert figure(document, "seal", "last")["steps"] == [4] * 4
    assert figure(document, "seal", "declared")["steps"] == [4] * 4
    assert figure(document, "seal", "development")["steps"] == [2] * 4
    best = figure(document, "seal", "best")["mean"]["value"]
    assert best >= figure(document, "seal", "development")["mean"]["value"]
    # What a selection on the reported suite adds is never below zero.
    assert document["suites"]["held_out"]["selection"]["against"] == "development"
    assert document["suites"]["held_out"]["selection"]["optimism"] > 0


def test_a_suite_that_was_not_played_at_the_chosen_step_has_no_figure_there(
    tmp_path: Path,
) -> None:
    write_study(tmp_path)
    for recipe, seed in STUDY.runs():
        folder = tmp_path / f"experiments/tech_synthetic/{STUDY.run_name(recipe, seed)}"
        log = folder / "validation_log/2.jsonl"
        lines = log.read_text().splitlines(keepends=True)
        log.write_text("".join(line for line in lines if "held_out" not in line))
    document = made(tmp_path)
    rules = {one["step_rule"] for one in document["suites"]["held_out"]["figures"]}
    # Nor is there a best one of a single step after training.
    assert rules == {"start", "last", "declared"}
    assert document["suites"]["held_out"]["selection"]["optimism"] is None


def test_means_are_those_of_the_logs(tmp_path: Path) -> None:
    for recipe, seed in STUDY.runs():
        lift = {"vanilla": 0.0, "seal": 1.0, "placebo": 0.5}[recipe]
        scores = {
            4: {
                "held_out": {
                    "multi_turn_base_1": [0.0, lift],
                    "multi_turn_miss_func_1": [1.0, 1.0],
                },
                "development": {"multi_turn_base_900": [1.0]},
            }
        }
        write_run(tmp_path, STUDY.run_name(recipe, seed), seed, scores)
    document = made(tmp_path)
    assert figure(document, "seal")["mean"]["value"] == (0.5 + 1) / 2
    assert figure(document, "seal")["pass_at"]["2"]["value"] == 1.0
    assert figure(document, "seal")["pass_all"]["2"]["value"] == 0.5
    assert figure(document, "seal")["by_seed"] == [0.75] * 4
    assert figure(document, "seal")["against_baseline"]["difference"]["value"] == 0.25
    training = document["training"]["seal"]
    assert training["metrics"]["label/state_mismatch"]["1"]["mean"] == 0.25
    advantage = training["metrics"]["seal/advantage/token_mean_after"]["2"]
    assert advantage["mean"] == pytest.approx(-0.25) and advantage["low"] < -0.25
    assert training["interface"] == {"schema_cues": {"2": 1.0}}
    assert document["cost"]["seal"] == pytest.approx(
        {
            "tokens": 1000,
            "step_s": 10.0,
            "wall_s": 20.0,
            "core_hours": 40 / 3600,
            "gpu_hours": 0.0,
        }
    )


def test_variants_with_fewer_seeds_are_not_in_the_primary_comparison(tmp_path: Path) -> None:
    study = replace(STUDY, fewer_seeds={"seal": (1, 2, 3)})
    write_study(tmp_path)
    document = report(study, read_runs(tmp_path, study), {}, {}, compose)
    variant = figure(document, "seal", "declared")["against_baseline"]["difference"]
    assert variant["excludes_zero"] and not variant["notable"]
    placebo = figure(document, "placebo", "declared")["against_baseline"]["difference"]
    assert placebo["p_value_corrected"] == placebo["p_value"]


def test_a_contrast_compares_two_recipes_of_which_none_is_the_baseline(tmp_path: Path) -> None:
    study = replace(STUDY, contrasts=(("seal", "placebo"), ("placebo", "vanilla")))
    write_study(tmp_path)
    document = report(study, read_runs(tmp_path, study), {}, {}, compose)
    seal, placebo = (figure(document, name, "declared") for name in ("seal", "placebo"))
    found = seal["contrasts"]["placebo"]
    assert found["difference"]["excludes_zero"] and not found["difference"]["notable"]
    assert found["difference"]["value"] == pytest.approx(
        seal["mean"]["value"] - placebo["mean"]["value"]
    )
    # The same comparison by either way, but only the primary one is corrected and marked.
    ours, primary = placebo["contrasts"]["vanilla"], placebo["against_baseline"]
    assert ours["difference"]["low"] == primary["difference"]["low"]
    assert "p_value_corrected" in primary["difference"]
    assert "p_value_corrected" not in ours["difference"]
    lines = pages.page(document).splitlines()
    assert any(line.startswith("| `seal` - `placebo` | +") for line in lines)


def test_a_declared_step_without_a_validation_is_refused(tmp_path: Path) -> None:
    study = replace(STUDY, declared_step=3)
    write_study(tmp_path)
    with pytest.raises(StudyError, match="no validation of suite 'held_out' at step 3"):
        report(study, read_runs(tmp_path, study), {}, {}, compose)


def test_a_run_whose_validation_is_missing_is_refused(tmp_path: Path) -> None:
    write_study(tmp_path)
    (tmp_path / "experiments/tech_synthetic/made-seal-s2/validation_log/2.jsonl").unlink()
    with pytest.raises(StudyError, match=r"made-seal-s2 has .* at steps \[0, 4\], made-vanilla-s1"):
        made(tmp_path)


@pytest.mark.parametrize("gone", ["loop/rounds.jsonl", "metrics.jsonl"])
def test_a_finished_run_without_its_logs_is_refused(tmp_path: Path, gone: str) -> None:
    write_study(tmp_path)
    for path in (tmp_path / "experiments/made-seal-s2").glob(gone.replace(".jsonl", "*.jsonl")):
        path.unlink()
    with pytest.raises(StudyError, match="logs of made-seal-s2 cannot be read: .* is missing"):
        made(tmp_path)


def test_runs_that_shared_the_machine_are_noted(tmp_path: Path) -> None:
    write_study(tmp_path)
    folder = study_folder(tmp_path, STUDY)
    folder.mkdir(parents=True)
    for run, started, ended, place in (
        ("made-vanilla-s1", 0, 100, None),
        ("made-seal-s1", 50, 150, None),
        ("made-seal-s2", 150, 200, None),
        ("made-seal-s3", 150, 200, "head.made.up:6379"),
    ):
        line = {"run": run, "code": 0, "started": started, "ended": ended, "place": place}
        append_json_lines(folder / LAUNCHES, line)
    launches = read_launches(folder)
    (note,) = report(STUDY, read_runs(tmp_path, STUDY), {}, launches, compose)["notes"]
    assert note.startswith("2 of 4 runs shared the machine")
    assert note.endswith(": made-vanilla-s1, made-seal-s1")
    # An address is kept as a number.
    keep_study(tmp_path, STUDY, tmp_path / "kept")
    with plain_folder(tmp_path / "kept") as logs:
        kept = (study_folder(logs, STUDY) / LAUNCHES).read_text()
    assert "cluster 1" in kept and "made.up" not in kept


def test_a_damaged_line_of_the_launch_log_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    (tmp_path / LAUNCHES).write_text('{"run": "made-seal-s1"}\n')
    with pytest.raises(StudyError, match="launches.jsonl has a damaged line: 'code'"):
        read_launches(tmp_path)


def test_tasks_can_be_left_out(tmp_path: Path) -> None:
    write_study(tmp_path)
    gone = {"without the hard ones": frozenset(f"multi_turn_base_{n}" for n in range(15))}
    document = report(STUDY, read_runs(tmp_path, STUDY), gone, {}, compose)
    figures_of = document["suites"]["held_out"]["figures"]
    kinds = {one["tasks"]: one["mean"]["tasks"] for one in figures_of}
    assert kinds == {"all": TASKS, "without the hard ones": 15}


def test_a_run_that_did_not_finish_is_counted_and_not_dropped_silently(tmp_path: Path) -> None:
    write_study(tmp_path, done=False)
    failed = {
        "made-placebo-s4": Launches(total=2, failed=2),
        "made-seal-s1": Launches(total=3, failed=1, finished=True, seconds=400.0),
        "made-seal-s2": Launches(total=1, finished=True, seconds=100.0),
    }
    document = report(STUDY, read_runs(tmp_path, STUDY), {}, failed, compose)
    assert not document["complete"]
    assert document["notes"] == [
        "3 of 6 launches failed",
        "made-seal-s1 has finished after 1 failed launches",
        "made-placebo-s4 has not finished; failed launches: 2",
    ]
    assert figure(document, "placebo")["seeds"] == [1, 2, 3]
    # Paired by the seeds that both have.
    assert figure(document, "placebo")["against_baseline"]["seeds"] == [1, 2, 3]
    page = pages.page(document)
    assert "**The study is not complete.**" in page
    placebos = [line for line in page.splitlines() if line.startswith("| placebo")]
    assert any(line.split("|")[-3].endswith("on seeds 1, 2, 3 ") for line in placebos)
    # Nothing is bold before the whole primary comparison is there, not even what is sure.
    assert not figure(document, "seal", "declared")["against_baseline"]["difference"]["notable"]
    assert "| **" not in page
    # Failed and interrupted launches cost as well. The study did not launch the other runs.
    assert document["cost"]["seal"]["wall_s"] == (400 + 100 + 2 * 40) / 4
    assert document["cost"]["vanilla"]["wall_s"] == 40


def test_runs_that_have_not_begun_are_one_note(tmp_path: Path) -> None:
    write_study(tmp_path)
    for name in ("made-placebo-s3", "made-placebo-s4", "made-seal-s2"):
        shutil.rmtree(tmp_path / "launcher_record" / name)
    assert made(tmp_path)["notes"] == ["3 runs have not begun: seal s2; placebo s3, s4"]


def test_rules_that_name_the_same_steps_share_a_table(tmp_path: Path) -> None:
    write_study(tmp_path)
    page = pages.page(made(tmp_path))
    heads = [line for line in page.splitlines() if line.startswith("### ")]
    together = "### At the last step, also at the step that was declared beforehand (4)"
    assert together in heads and len(set(heads)) < 2 * 4
    # The declared step's figures are shown: they have the mark of the primary comparison.
    assert "| **+" in page.partition(together)[2].partition("###")[0]


def test_intervals_of_shares_end_where_shares_end(tmp_path: Path) -> None:
    for recipe, seed in STUDY.runs():
        rates = [1.0, 1.0, 1.0, 0.9 if recipe == "seal" else 0.1]
        scores = {4: {"held_out": drawn(rates, 4, seed), "development": drawn(rates, 4, seed)}}
        write_run(tmp_path, STUDY.run_name(recipe, seed), seed, scores, rounds=4)
    document = made(tmp_path)
    shares = [figure(document, recipe)["mean"] for recipe in ("seal", "vanilla")]
    assert all(0 <= one["low"] <= one["value"] <= one["high"] <= 1 for one in shares)


def test_without_a_baseline_there_is_nothing_to_report(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="no run of the baseline 'vanilla' has finished"):
        made(tmp_path)


def test_runs_that_played_other_tasks_are_refused(tmp_path: Path) -> None:
    write_study(tmp_path)
    log = tmp_path / "experiments/tech_synthetic/made-seal-s2/validation_log/4.jsonl"
    log.write_text("".join(log.read_text().splitlines(keepends=True)[1:]))
    with pytest.raises(StudyError, match="made-seal-s2, step 4, suite 'held_out': other tasks"):
        made(tmp_path)


def test_what_is_kept_gives_the_same_report(tmp_path: Path) -> None:
    write_study(tmp_path / "all")
    for run in STUDY.runs():
        keep(tmp_path / "all", STUDY.run_name(*run), tmp_path / "kept")
    assert made(tmp_path / "kept") == made(tmp_path / "all")
    size = {
        place: sum(file.stat().st_size for file in (tmp_path / place).rglob("*") if file.is_file())
        for place in ("all", "kept")
    }
    assert size["kept"] < size["all"] / 4
    texts = [file.read_text() for file in (tmp_path / "kept").rglob("*.jsonl")]
    assert not any("dialogue" in text or "profile" in text for text in texts)


def test_what_is_kept_has_the_interface_the_rollouts_and_the_pass_rates(tmp_path: Path) -> None:
    write_study(tmp_path / "all")
    name = "made-seal-s2"
    keep(tmp_path / "all", name, tmp_path / "kept")
    everything, kept = (tmp_path / place / "experiments" / name for place in ("all", "kept"))

    def lines(folder: Path, log: str) -> list[dict[str, Any]]:
        return list(LineReader(folder / log).new())

    for before, after in zip(
        lines(everything, "loop/rounds.jsonl"), lines(kept, "loop/rounds.jsonl"), strict=True
    ):
        assert before.pop("profile")
        assert after == before
    rollouts = lines(kept, "loop/rollouts.jsonl")
    assert len(rollouts) == 4 * 4
    for before, after in zip(lines(everything, "loop/rollouts.jsonl"), rollouts, strict=True):
        assert after["turns"] == [
            {"label": turn["label"], "cascade": turn["cascade"]} for turn in before["turns"]
        ]
        assert (after["group"], after["policy_tokens"], after["response_tokens"]) == (
            before["uid"][:2],
            60,
            110,
        )
        left_out = {"time", "environment_s", "turn_spans"}
        assert after == {k: v for k, v in before.items() if k not in left_out} | {
            "turns": after["turns"]
        }
    metrics = {line["step"]: line["data"] for line in lines(kept, "metrics.jsonl")}
    assert "val-seal/held_out/pass_rate" in metrics[0]
    average = metrics[4]["val-seal/held_out/category_average"]
    # What was written when it was played is what the report counts.
    seal = figure(made(tmp_path / "all"), "seal")
    assert average == pytest.approx(seal["by_seed"][seal["seeds"].index(2)])
    assert all("timing_s/step" in data for step, data in metrics.items() if step)
    assert not any("actor/lr" in data for data in metrics.values())


def test_what_is_kept_tells_no_folder_and_host_and_can_be_kept_again(tmp_path: Path) -> None:
    write_study(tmp_path / "all")
    keep_study(tmp_path / "all", STUDY, tmp_path / "kept")
    stale = tmp_path / "earlier/launcher_record/made-seal-s2/resumed_1/config.yaml"
    stale.parent.mkdir(parents=True)
    stale.write_text("of an earlier copy")
    (tmp_path / "again").mkdir()
    pack(tmp_path / "earlier", tmp_path / "again" / ARCHIVE)
    with plain_folder(tmp_path / "kept") as kept:
        keep_study(kept, STUDY, tmp_path / "again")
        records = [path.read_text() for path in kept.rglob("record.json")]
        assert made(kept) == made(tmp_path / "all")
    assert [path.name for path in (tmp_path / "kept").iterdir()] == [ARCHIVE]
    archive = (tmp_path / "kept" / ARCHIVE).read_bytes()
    assert (tmp_path / "again" / ARCHIVE).read_bytes() == archive
    assert len(records) == len(STUDY.runs())
    assert not any("made-up-host" in text or "/made/up" in text for text in records)


def test_an_archive_keeps_the_runs_of_another_machine(tmp_path: Path) -> None:
    write_study(tmp_path / "all")
    for seeds, place in (((1, 2), "one"), ((3, 4), "two")):
        for recipe, seed in STUDY.runs():
            if seed in seeds:
                name = STUDY.run_name(recipe, seed)
                keep(tmp_path / "all", name, tmp_path / place)
        keep_study(tmp_path / place, STUDY, tmp_path / "kept")
    with plain_folder(tmp_path / "kept") as kept:
        assert made(kept) == made(tmp_path / "all")


def test_half_a_line_of_a_run_that_is_under_way_is_an_error_in_a_sentence(tmp_path: Path) -> None:
    write_study(tmp_path / "all")
    log = tmp_path / "all/experiments/tech_synthetic/made-seal-s2/validation_log/4.jsonl"
    log.write_text(log.read_text()[:-9])
    (tmp_path / "all/experiments/made-seal-s2/loop/phases.jsonl").write_text("")
    (tmp_path / "all/experiments/made-seal-s2/loop/rounds.jsonl").write_text("")
    with pytest.raises(StudyError, match="the logs of made-seal-s2 cannot be copied: .*not JSON"):
        keep_study(tmp_path / "all", STUDY, tmp_path / "kept")


def test_the_page_and_the_figures_hold_the_figures(tmp_path: Path) -> None:
    write_study(tmp_path)
    document = json.loads(json.dumps(made(tmp_path)))
    page = pages.page(document)
    difference = figure(document, "seal")["against_baseline"]["difference"]
    shown = f"{100 * difference['value']:+.1f} ({100 * difference['low']:+.1f} to"
    assert f"| **{shown}" in page and page.count("**+") == 1
    assert "selected on what is reported: too high" in page
    drawn_files = figures.draw(document, tmp_path)
    drawn = ("held_out", "training", "labels", "interface")
    files = {f"{name}.{kind}" for name in drawn for kind in ("svg", "png")}
    assert {path.name for path in drawn_files} == files
    assert all(f"({name}.svg)" in page for name in drawn)
    svg = (tmp_path / "held_out.svg").read_text()
    assert svg.startswith("<?xml") and all(path.stat().st_size > 5000 for path in drawn_files)


def test_the_lengths_of_dialogues_that_passed_and_failed_are_told_apart(tmp_path: Path) -> None:
    write_study(tmp_path)
    document = made(tmp_path)
    page = pages.page(document).splitlines()
    for recipe in ("vanilla", "seal", "placebo"):
        more = told_apart(f"made-{recipe}-s1", "held_out", 4)
        tokens = document["suites"]["held_out"]["tokens"][recipe]
        assert tokens == {"passed": 100 + more, "failed": 300 + more}
        assert f"| {recipe} | {100 + more} | {300 + more} |" in page


def test_a_suite_that_was_played_once_is_drawn_with_its_differences(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_study(tmp_path)
    document = json.loads(json.dumps(made(tmp_path)))
    suite = document["suites"]["held_out"]
    for by_step in suite["curves"].values():
        for step in list(by_step)[:-1]:
            del by_step[step]
    made_figures: dict[str, Any] = {}

    def saved(figure: Any, path: Path) -> list[Path]:
        made_figures[path.name] = figure
        return []

    monkeypatch.setattr(figures, "_saved", saved)
    figures.draw(document, tmp_path)
    scores, differences = made_figures["held_out"].axes[:2]
    assert differences.get_title() == "difference to vanilla (points)"
    last = [one for one in suite["figures"] if (one["tasks"], one["step_rule"]) == ("all", "last")]
    assert [one.get_text() for one in scores.get_yticklabels()] == [one["recipe"] for one in last]
    compared = [one["against_baseline"]["difference"] for one in last if "against_baseline" in one]
    assert len(compared) == len(last) - 1
    for axes, estimates in ((scores, [one["mean"] for one in last]), (differences, compared)):
        points, ends = [], []
        for line in axes.lines:
            if line.get_marker() == "o":
                points.append(line.get_xdata()[0])
            elif line.get_marker() == "None" and line.get_color() != "black":
                ends.append(list(line.get_xdata()))
        assert points == [100 * one["value"] for one in estimates]
        assert ends == [[100 * one["low"], 100 * one["high"]] for one in estimates]
    seeds = [list(line.get_xdata()) for line in scores.lines if line.get_marker() == "|"]
    assert seeds == [[100 * score for score in one["by_seed"]] for one in last]
