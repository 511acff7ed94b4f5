"""The warm-up: what is learnt of a demonstration, and that an interrupted one ends the same."""

import contextlib
import json
import math
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.synchronize import Event
from pathlib import Path
from typing import Any, cast

import psutil
import pytest
import real_tokenizers
import torch
import warm_up
from hypothesis import given
from hypothesis import strategies as st
from small_models import TINY
from transformers import LlamaConfig, LlamaForCausalLM

from seal.backbone.loading import Backbone, load_backbone
from seal.launch.listening import free_port
from seal.launch.recipe import EXP, load_recipe
from seal.warm_up import trainer as warm_up_trainer
from seal.warm_up.supervised import TokenizedDialogue, summed_loss, tokenize
from seal.warm_up.trainer import LOSSES, STATE, WEIGHTS, Training, in_steps, run, shares, train
from seal.warm_up.warm_up import WarmUp, WarmUpError, keep_settings
from seal.warm_up.whole_folder import whole_folder

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "ls",
            "description": "List.",
            "parameters": {"type": "object", "properties": {}, "required": []},
        },
    }
]
DEMONSTRATION: dict[str, Any] = {
    "task_id": "multi_turn_base_0",
    "tools": TOOLS,
    "messages": [
        {"role": "system", "content": "Look first."},
        {"role": "user", "content": "What is there?"},
        {"role": "assistant", "content": "[do_ls()]", "learn": False},
        {"role": "tool", "content": "Error: no such tool", "name": "do_ls"},
        {"role": "assistant", "content": "[ls()]", "learn": True},
        {"role": "tool", "content": "{'a': 1}", "name": "ls"},
        {"role": "assistant", "content": "Done.", "learn": True},
        {"role": "user", "content": "[CONVERSATION_COMPLETED]"},
    ],
}


def backbone(tokenizer: str, name: str) -> Backbone:
    recipe = load_recipe(EXP / "SEAL.yaml", [f"backbone={name}"])
    return load_backbone(real_tokenizers.folder(tokenizer), recipe)


@pytest.mark.parametrize(
    ("tokenizer", "name", "end"),
    [("smollm2", "smollm2-135m", "<|im_end|>"), ("qwen2.5", "qwen2.5-7b", "<|im_end|>")],
)
def test_the_policy_learns_its_own_words_and_where_to_stop(
    tokenizer: str, name: str, end: str
) -> None:
    loaded = backbone(tokenizer, name)
    dialogue = tokenize(loaded, DEMONSTRATION)
    learnt = [one for one, learn in zip(dialogue.ids, dialogue.learn, strict=True) if learn]
    assert loaded.tokenizer.decode(learnt) == f"[ls()]{end}Done.{end}"
    text = loaded.tokenizer.decode(dialogue.ids)
    assert text.count("[do_ls()]") == 1
    # As the template writes the whole dialogue, which ends with what the policy never sees.
    whole = loaded.tokenizer.apply_chat_template(
        [{**one, "learn": None} for one in DEMONSTRATION["messages"][1:]],
        tools=TOOLS,
        tokenize=False,
    )
    behind_system = text[text.index("What is there?") :]
    assert whole[whole.index("What is there?") :].startswith(behind_system)


@given(st.lists(st.integers(1, 2000), min_size=1, max_size=12), st.integers(1, 4))
def test_all_dialogues_of_a_step_are_dealt_out_evenly(lengths: list[int], processes: int) -> None:
    batch = [
        TokenizedDialogue([place] * length, [True] * length) for place, length in enumerate(lengths)
    ]
    dealt = shares(batch, processes)
    assert sorted(one.ids[0] for part in dealt for one in part) == list(range(len(lengths)))
    totals = [sum(len(one.ids) for one in part) for part in dealt]
    assert max(totals) - min(totals) <= max(lengths)


def test_the_learning_rate_rises_and_falls() -> None:
    rates = [warm_up_trainer.rate(step, 100, 1e-3) for step in range(100)]
    assert max(rates) == pytest.approx(1e-3, rel=0.03)
    assert rates[:10] == sorted(rates[:10])
    assert rates[10:] == sorted(rates[10:], reverse=True)
    assert rates[-1] == pytest.approx(2e-5)


@torch.no_grad()
def test_padding_changes_no_loss(model: Path) -> None:
    loaded = LlamaForCausalLM.from_pretrained(model)
    short, long = dialogues(2)
    long = TokenizedDialogue(long.ids * 2, long.learn * 2)
    alone = [summed_loss(loaded, [one], pad=0) for one in (short, long)]
    together, count = summed_loss(loaded, [short, long], pad=0)
    assert count == sum(one[1] for one in alone)
    assert float(together) == pytest.approx(sum(float(one[0]) for one in alone), rel=1e-5)


# ---- training ------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    torch.manual_seed(1)
    LlamaForCausalLM(LlamaConfig(**TINY, tie_word_embeddings=True)).save_pretrained(folder)
    return folder


def dialogues(count: int) -> list[TokenizedDialogue]:
    generator = torch.Generator().manual_seed(count)
    ids = torch.randint(0, 64, (count, 12), generator=generator).tolist()
    return [TokenizedDialogue(one, [False] * 4 + [True] * 8) for one in ids]


def training(model: Path, folder: Path) -> Training:
    folder.mkdir()
    return Training(
        model=str(model),
        steps=in_steps(dialogues(12), batch=2, seed=1),
        folder=folder,
        dtype="float32",
        learning_rate=1e-2,
        seed=1,
    )


class StopAfter:
    """An event that is set when it has been asked so many times."""

    def __init__(self, times: float) -> None:
        self.left = times

    def is_set(self) -> bool:
        self.left -= 1
        return self.left <= 0


def train_here(training: Training, stop_after: float) -> None:
    """Train in this process alone."""
    train(0, 1, free_port(), training, cast(Event, StopAfter(stop_after)))


def losses(folder: Path) -> list[float]:
    return [json.loads(line)["loss"] for line in (folder / LOSSES).read_text().splitlines()]


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return dict(LlamaForCausalLM.from_pretrained(folder / WEIGHTS).state_dict())


def test_an_interrupted_training_ends_as_one_that_was_not(model: Path, tmp_path: Path) -> None:
    whole, halves = (training(model, tmp_path / name) for name in ("whole", "halves"))
    train_here(whole, stop_after=math.inf)
    train_here(halves, stop_after=3)
    assert len(losses(halves.folder)) == 3
    assert not (halves.folder / WEIGHTS).exists()
    # Killed later: a step was taken that the state does not know.
    with (halves.folder / LOSSES).open("a") as file:
        file.write('{"loss": 99}\n')
    train_here(halves, stop_after=math.inf)
    assert losses(halves.folder) == losses(whole.folder)
    ours, theirs = weights(halves.folder), weights(whole.folder)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    assert losses(whole.folder)[-1] < losses(whole.folder)[0]
    before = LlamaForCausalLM.from_pretrained(model).state_dict()
    moved = {name for name in theirs if not torch.equal(theirs[name], before[name])}
    assert "model.layers.0.mlp.up_proj.weight" in moved
    assert "model.embed_tokens.weight" not in moved


def test_a_training_killed_before_its_first_state_begins_anew(model: Path, tmp_path: Path) -> None:
    killed = training(model, tmp_path / "killed")
    (killed.folder / LOSSES).write_text('{"loss": 99}\n')
    train_here(killed, stop_after=2)
    assert len(losses(killed.folder)) == 2
    assert 99 not in losses(killed.folder)


def test_in_bfloat16_small_changes_add_up(model: Path, tmp_path: Path) -> None:
    """A weight of 1 in bfloat16 cannot change by 1e-3; the float32 one beside it can."""
    slow = replace(training(model, tmp_path / "slow"), dtype="bfloat16", learning_rate=1e-4)
    train_here(slow, stop_after=math.inf)
    norm = weights(slow.folder)["model.norm.weight"]
    assert 0 < float((norm - 1).abs().max()) < 1e-3


@pytest.mark.slow
def test_two_processes_train_as_one_does(model: Path, tmp_path: Path) -> None:
    one, two = (training(model, tmp_path / name) for name in ("one", "two"))
    run(one, 1)
    run(two, 2)
    assert losses(two.folder) == pytest.approx(losses(one.folder), rel=1e-4)
    assert not (one.folder / STATE).exists()


# ---- command line --------------------------------------------------------------------------


@pytest.fixture
def refuse(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    def said(*argv: str) -> str:
        assert warm_up.main(list(argv)) == 1
        return capsys.readouterr().err

    return said


def test_bad_input_is_one_sentence(refuse: Callable[..., str], model: Path, tmp_path: Path) -> None:
    out = f"--out={tmp_path / 'out'}"
    nowhere = refuse(f"--model={tmp_path}", out)
    assert nowhere.startswith(f"warm_up: --model {tmp_path} is no model; for SmolLM2")
    assert "exists, but is no warmed-up model" in refuse(f"--model={model}", f"--out={tmp_path}")
    assert "cannot load the tokenizer" in refuse(f"--model={model}", out)
    assert not (tmp_path / "out.unfinished").exists()


def test_another_setting_does_not_go_on_with_what_was_begun(tmp_path: Path) -> None:
    argv = [f"--model={tmp_path}", f"--out={tmp_path / 'out'}"]
    begun = tmp_path / "out.unfinished"

    def settings(*more: str) -> WarmUp:
        return warm_up.settings_of(warm_up.parse_arguments([*argv, *more]))

    keep_settings(begun, settings())
    keep_settings(begun, settings("--report", "--processes=1"))
    with pytest.raises(WarmUpError, match="another --learning-rate"):
        keep_settings(begun, settings("--learning-rate=1"))


def test_an_interrupted_report_leaves_no_process_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = tmp_path / "pid"
    (tmp_path / "scripts").mkdir()
    # An evaluation takes longer to end its servers than subprocess.run waits after Ctrl-C.
    (tmp_path / "scripts/evaluate.py").write_text(
        "import os, pathlib, subprocess, time\n"
        "server = subprocess.Popen(['sleep', '600'], start_new_session=True)\n"
        f"pathlib.Path({str(started)!r}).write_text(str(server.pid))\n"
        "time.sleep(600)\n"
    )
    monkeypatch.setattr(warm_up, "ROOT", tmp_path)

    main = threading.get_ident()

    def interrupt() -> None:
        while not (started.exists() and started.read_text()):
            time.sleep(0.05)
        signal.pthread_kill(main, signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        warm_up.report(warm_up.parse_arguments(["--model=a", "--out=b"]))
    thread.join()
    with contextlib.suppress(psutil.NoSuchProcess):
        assert psutil.Process(int(started.read_text())).status() == psutil.STATUS_ZOMBIE


def test_a_folder_that_is_in_the_way_is_refused_before_the_work(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="exists, but is not complete"), whole_folder(tmp_path):
        raise AssertionError("a policy would be built in vain")


def test_a_mix_that_cannot_be_read(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        warm_up.main(["--model=a", "--out=b", "--mix=base"])
    assert ended.value.code == 2
    assert "expected e.g. base=0.5" in capsys.readouterr().err
