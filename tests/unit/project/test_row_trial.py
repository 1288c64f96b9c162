"""`tacit check` tries an own module on private rows, and says how many count as zero."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import torch
from tacit_services.cli.main import main
from tacit_services.project.row_trial import RowTrial, remarks, tried
from torch import nn

from tacit.datasets import EdgeRows
from tacit.errors import OwnersError
from tacit.models.losses import cross_entropy
from tacit.models.module import module_model
from tacit.models.own_network import OwnNetwork

NETS = """
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, outputs, hidden=16):
        super().__init__()
        self.layer = nn.Linear(inputs, outputs)

    def forward(self, x):
        return self.layer(x.log())
"""


class Logarithm(nn.Module):
    def __init__(self, least: float = 0.0) -> None:
        super().__init__()
        self.output = nn.Linear(2, 2)
        self.least = least

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.as_tensor(self.output((x + self.least).log()))


def model(least: float) -> OwnNetwork:
    return module_model("n:n", lambda: Logarithm(least), shape=(2,), outputs=2, loss=cross_entropy)


def rows(at_bound: int, count: int) -> EdgeRows:
    """Return rows of which some are at a bound, and the public row."""
    x = torch.full((count + 1, 2), 0.5)
    x[torch.linspace(0, count - 1, at_bound).long(), 1] = 0.0
    x[-1] = 0.0
    return EdgeRows(x, torch.arange(count + 1) % 2)


def test_rows_at_a_bound_without_a_finite_gradient_are_counted() -> None:
    assert tried(model(0.0), rows(40, 250), 1000) == RowTrial(250, 40)
    assert tried(model(1e-4), rows(40, 250), 1000) == RowTrial(250, 0)
    assert tried(model(0.0), rows(2, 5000), 100).rows == 100


def test_the_owner_is_told_and_a_run_that_would_learn_nothing_is_refused() -> None:
    assert list(remarks([RowTrial(500, 0), RowTrial(10, 0)])) == []
    [remark] = remarks([RowTrial(500, 0), RowTrial(500, 450)])
    assert remark.startswith("450 of 1,000 rows that were tried have a gradient that is not finite")
    with pytest.raises(OwnersError) as refused:
        list(remarks([RowTrial(100, 95)]))
    assert "95 of 100 rows" in refused.value.for_owner
    assert "95" not in str(refused.value)


def test_check_says_it_before_anything_is_spent(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    lines = [
        f"{n % 50},{n * 7 % 90 if n % 2 else 0},{'ill' if n % 2 else 'well'}" for n in range(900)
    ]
    Path("public.csv").write_text("age,income,outcome\n" + "\n".join(lines[1:401]) + "\n")
    with pytest.raises(SystemExit):
        main(["new", "c", "--table", "public.csv", "--sites", "1", "--model", "logistic"])
    Path("c/site0.csv").write_text("age,income,outcome\n" + "\n".join(lines) + "\n")
    Path("c/nets.py").write_text(NETS)
    plain = Path("c/run.toml").read_text()
    own = 'name = "python"\nentry = "nets:Net"\narguments = { inputs = 2, outputs = 2 }'
    plain = re.sub('name = "logistic".*', own, plain)
    bounded = [
        line.split(", center")[0] + " }" if line.startswith(("age", "income")) else line
        for line in plain.splitlines()
    ]
    Path("c/run.toml").write_text("\n".join(bounded))
    with pytest.raises(SystemExit) as ended:
        main(["check", "c/run.toml"])
    printed = capsys.readouterr().out
    assert ended.value.code == 0
    assert "of 900 rows that were tried have a gradient that is not finite" in printed
