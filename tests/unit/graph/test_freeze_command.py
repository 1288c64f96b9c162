"""`tacit freeze` of language models: an own loss of tokens, and a public start of some weights."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor
from torch.nn import functional

from tacit import config
from tests.helpers.own_simulation import simulated
from tests.helpers.own_texts import notes, run_file, vocabulary
from tests.unit.project.test_new_targets import tacit

WORDS, LENGTH = 20, 12
FREEZE = ("freeze", "nets:Language", "--shape", str(LENGTH), "--integers", str(WORDS))
ARGUMENTS = ("--arguments", f"words = {WORDS}", "--out", "net.graph.json")
LOSS = """

def smoothed(output, y):
    learnt = (y >= 0).sum().clamp(min=1)
    each = functional.cross_entropy(
        output, y, ignore_index=-100, label_smoothing=0.1, reduction="sum"
    )
    return each / learnt
"""


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Make notes, a tokenizer's file, and a run file for a graph of the next token."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    monkeypatch.chdir(tmp_path)
    vocabulary(tmp_path)
    notes(tmp_path / "train.csv", 1200, seed=2)
    notes(tmp_path / "public.csv", 300, seed=3)
    keys = 'name = "graph"\nfile = "net.graph.json"'
    run_file(tmp_path, '{ next_token = "note" }', keys, updates=10)
    nets = Path("nets.py")
    nets.write_text("from torch.nn import functional\n" + nets.read_text() + LOSS)


def smoothed(scores: Tensor, y: Tensor) -> Tensor:
    """Return the same loss of each row of a batch, by torch alone."""
    rows = [
        functional.cross_entropy(row[label >= 0], label[label >= 0], label_smoothing=0.1)
        for row, label in zip(scores, y, strict=True)
    ]
    return torch.stack(rows)


def test_a_language_model_with_an_own_loss_freezes_and_trains(tmp_path: Path) -> None:
    assert tacit(*FREEZE, "--loss", "nets:smoothed", "--tokens", str(WORDS), *ARGUMENTS) == 0
    Path("nets.py").unlink()  # the graph is enough
    assert tacit("check", "run.toml") == 0
    run = config.load(tmp_path / "run.toml")
    model, test = run.build_model(), run.source.test(None)
    assert test is not None
    assert not model.trains_objective
    params = model.init(0)
    scores = model.logits(params, test.x)
    assert torch.allclose(model.data_loss(scores, test.y), smoothed(scores, test.y), atol=1e-5)
    metrics = simulated(tmp_path / "run.toml", tmp_path / "out")["metrics"]
    assert metrics["perplexity"] < WORDS
    assert metrics["accuracy"] > 1 / WORDS
    assert tacit("export", "model", "--run", "out") == 0
    assert tacit("predict", "model", "--table", "public.csv") == 0


def test_a_target_has_tokens_or_classes(capsys: pytest.CaptureFixture[str]) -> None:
    both = ("--loss", "nets:smoothed", "--tokens", "20", "--classes", "3")
    assert tacit(*FREEZE, *both, *ARGUMENTS) == 2
    assert tacit(*FREEZE, "--loss", "nets:smoothed", "--tokens", "1", *ARGUMENTS) == 2
    lines = capsys.readouterr().err.splitlines()
    assert "a target has one of them" in lines[0]
    assert "--tokens 1: expected at least 2" in lines[1]


def test_an_index_by_a_token_that_is_not_learnt_is_refused(
    capsys: pytest.CaptureFixture[str],
) -> None:
    with Path("nets.py").open("a") as file:
        file.write("\n\ndef picked(output, y):\n    return -output.gather(1, y[:, None]).sum()\n")
    assert tacit(*FREEZE, "--loss", "nets:picked", "--tokens", str(WORDS), *ARGUMENTS) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "could have an index outside of 0 to 19; clamp it first (it is -100 to 19)" in line
    assert "loss: node %gather" in line


def test_public_first_values_of_some_weights_are_frozen_with_the_others(
    capsys: pytest.CaptureFixture[str],
) -> None:
    words = torch.arange(float(WORDS * 8)).view(WORDS, 8)
    save_file({"words.weight": words}, "base.safetensors")
    assert tacit(*FREEZE, "--weights", "base.safetensors", *ARGUMENTS) == 0
    frozen = load_file("net.safetensors")
    assert torch.equal(frozen["words.weight"], words)
    assert frozen["head.weight"].any()
    assert tacit("check", "run.toml") == 0
    save_file({"words.weight": words[:3]}, "base.safetensors")
    capsys.readouterr()
    assert tacit(*FREEZE, "--weights", "base.safetensors", *ARGUMENTS) == 2
    assert "words.weight is [3, 8], the module has [20, 8]" in capsys.readouterr().err
    assert tacit(*FREEZE, "--weights", "none.safetensors", *ARGUMENTS) == 2
    assert "no such file" in capsys.readouterr().err


ACROSS = """
import torch
from torch import nn


class Across(nn.Module):
    def __init__(self):
        super().__init__()
        self.up, self.down = nn.Linear(8, 4), nn.Linear(4, 3)

    def forward(self, x):
        y = self.up(x)
        return self.down(y - y.mean(0))


class Alone(Across):
    def forward(self, x):
        return self.down(self.up(x))
"""


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (("nets:Across",), "depends on the other examples of its batch"),
        (("nets:Alone", "--trainable", "upp.*"), "trainable='upp.*' fits no weight of up.weight"),
        (("nets:Alone", "--trainable", "up.*,down.*"), "fits no weight of up.weight"),
    ],
)
def test_what_would_train_something_else_is_not_frozen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str],
    words: tuple[str, ...], why: str,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    Path("nets.py").write_text(ACROSS)
    command = ("--shape", "8", "--classes", "3", "--out", "net.graph.json")
    assert tacit("freeze", *words, *command) == 2
    assert why in capsys.readouterr().err
    assert not Path("net.graph.json").exists()
    assert tacit("freeze", "nets:Alone", "--trainable", "up.*", *command) == 0
