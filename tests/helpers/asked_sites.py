"""Five sites that have parts of a public table, and are asked again and again.

The sites are unequal: each class is dealt by Dirichlet's proportions. Tables are read by the
product's reader, messages go through bytes, and the product's server adds them up. Only a site's
exact sum is computed once and not for each simulation: what is drawn anew is the noise.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from tacit import config
from tacit.algorithms import registry
from tacit.algorithms.ask.ask_algorithm import deviation
from tacit.algorithms.base.edge import EdgeRole
from tacit.config.asked_table import AskedTable
from tacit.datasets.partition import all_shards
from tacit.privacy.ledger.simulated import SimulatedLedger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.choice import Ways
from tacit.privacy.private_sum.clipping import Clipped
from tacit.privacy.private_sum.whole_sums import WholeSums
from tacit.privacy.release import Releaser
from tacit.protocol import wire, wire_up
from tacit.protocol.messages import Hello, Push, Update
from tacit.questions.row_parts import Reals
from tests.helpers.run_files import toml

SITES = 5
_RUN = "simulated"
_NAMES = {"default.payment.next.month": "defaulted"}  # a name with dots would need quotes
Columns = Mapping[str, npt.NDArray[np.str_]]
Mask = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class PublicTable:
    """A public table, and what a run states of it. label: the class by which it is dealt."""

    file: str
    bounds: Mapping[str, tuple[float, float]]
    values: Mapping[str, tuple[str, ...]]
    label: str
    names: tuple[str, ...] = ()

    def read(self, root: Path) -> tuple[list[str], list[list[str]]]:
        """Return the names of the columns, and the rows."""
        with gzip.open(root / self.file, "rt", encoding="utf-8", newline="") as file:
            rows = [row for row in csv.reader(file, skipinitialspace=True) if row]
        if self.names:
            return list(self.names), rows
        return [_NAMES.get(name, name) for name in rows[0]], rows[1:]


ADULT = PublicTable(
    "adult/adult.data.gz",
    {
        "age": (0, 100), "fnlwgt": (0, 1_500_000), "edunum": (1, 16), "gain": (0, 100_000),
        "loss": (0, 5_000), "hours": (0, 100),
    },
    {"sex": ("Female", "Male"), "income": ("<=50K", ">50K"), "race": ("White", "Black")},
    "income",
    (
        "age", "workclass", "fnlwgt", "education", "edunum", "marital", "occupation", "relationship",
        "race", "sex", "gain", "loss", "hours", "country", "income",
    ),
)  # fmt: skip
CREDIT = PublicTable(
    "credit-default/UCI_Credit_Card.csv.gz",
    {
        "LIMIT_BAL": (0, 1_000_000), "AGE": (18, 90),
        **{f"BILL_AMT{month}": (-400_000, 1_700_000) for month in range(1, 7)},
        **{f"PAY_AMT{month}": (0, 1_700_000) for month in range(1, 7)},
    },
    {"SEX": ("1", "2"), "defaulted": ("0", "1"), "EDUCATION": ("1", "2", "3")},
    "defaulted",
)  # fmt: skip


class _SumOnce(WholeSums):
    """Adds up its rows once, and gives the same sum from then on."""

    _sums: Clipped | None = None

    def compute(self, params: Tensor, clip: float) -> Clipped:
        """Return the sum."""
        if self._sums is None:
            self._sums = super().compute(params, clip)
        return self._sums


class AskedSites:
    """Five sites with a table, which are asked all questions of a run file, in simulations."""

    def __init__(
        self, folder: Path, root: Path, table: PublicTable, questions: Sequence[str], epsilon: float
    ) -> None:
        names, rows = table.read(root)
        self.table = table
        self.columns: Columns = {
            name: np.array([row[place] for row in rows], np.str_)
            for place, name in enumerate(names)
        }
        labels = np.unique(self.columns[table.label], return_inverse=True)[1]
        parts = all_shards(
            torch.from_numpy(labels), shards=SITES, method="dirichlet", seed=3, alpha=0.5
        )
        self.sizes = [len(part) for part in parts]
        for number, part in enumerate(parts):
            with (folder / f"site-{number}.csv").open("w", newline="", encoding="utf-8") as file:
                csv.writer(file).writerows([names, *(rows[place] for place in part.tolist())])
        run_file = folder / "run.toml"
        run_file.write_text(_text(table, questions, epsilon, max(self.sizes)))
        self.run = config.load(run_file)
        self.definition = self.run.define()
        self.model = self.definition.build_model()
        self.edges = [self._edge(number, folder) for number in range(SITES)]
        assert isinstance(self.definition.data, AskedTable)
        assert self.definition.ask is not None
        self.sheet = self.definition.data.question_sheet(self.definition.ask)
        names_of_edges = [edge.edge for edge in self.edges]
        self.deviation = deviation(self.definition, names_of_edges, self.model.size)

    def _edge(self, number: int, folder: Path) -> EdgeRole:
        part = self.definition.source.edge(number, None, folder / f"kept-{number}")
        plan = self.definition.plans.plan(number, part.most)
        releaser = Releaser(plan, SimulatedLedger(), Random(1000 + number))
        arguments = self.definition, f"edge-{number}", part.rows, self.model, releaser
        return registry.edge(*arguments, ways=Ways(of_rows=_SumOnce))

    def sums(self) -> Reals:
        """Return the noisy sums of one more simulation, of noise that was not drawn before."""
        server = registry.server(self.definition, self.model)
        for edge in self.edges:
            (hello,) = edge.start()
            assert isinstance(hello.message, Hello)
            server.on_message(hello.message)
            (out,) = edge.on_message(server.global_model())
            assert isinstance(out.message, Push)
            payload = wire_up.up(_RUN, 1, out.message, bytes(32))
            update = wire_up.read_up(wire.decode(payload), bytes(32), self.model.size)
            assert isinstance(update, Update)
            server.on_message(update)
        assert server.version == SITES
        return np.asarray(server.params.double().numpy())

    def truth(self, question: str, label: str) -> float:
        """Return the exact figure of all rows, computed another way than the product does."""
        kind, *words = question.split()
        if kind == "count":
            return float(len(self.columns[self.table.label]))
        if kind == "missing":
            return float((self.columns[words[0]] == "?").sum())
        if kind == "quantile":
            return float(np.quantile(self.numbers(words[0]), float(label)))
        if kind == "histogram":
            return float(_inside(self.numbers(words[0]), float(words[2]), label).sum())
        if kind in ("counts", "crosstab"):
            columns = words[1:] if kind == "counts" else words
            pairs = zip(columns, label.split(", "), strict=True)
            return float(np.all([self._has(name, value) for name, value in pairs], axis=0).sum())
        cut = [self.numbers(name).clip(*self.table.bounds[name]) for name in words]
        if kind == "correlation":
            return float(np.corrcoef(np.stack(cut))[0, 1])
        return float(cut[0].mean() if kind == "mean" else cut[0].std())

    def numbers(self, name: str) -> Reals:
        """Return a column's numbers."""
        return self.columns[name].astype(np.float64)

    def _has(self, name: str, value: str) -> Mask:
        texts = self.columns[name]
        has: Mask = texts == {"missing": "?"}.get(value, value)
        if value == "other":
            has = ~np.isin(texts, [*self.table.values[name], "?"])
        return has


def _inside(numbers: Reals, high: float, label: str) -> Mask:
    """Return which numbers are in a cell; the last one has its upper edge."""
    word, edge = label.split()[0], label.split()[-1]
    inside: Mask
    if word == "missing":
        inside = np.isnan(numbers)
    elif word in ("below", "above"):
        inside = numbers < float(edge) if word == "below" else numbers > float(edge)
    else:
        inside = (numbers >= float(word)) & (numbers < float(edge))
        inside |= (numbers == high) & (float(edge) == high)
    return inside


def _text(table: PublicTable, questions: Sequence[str], epsilon: float, most: int) -> str:
    columns: dict[str, Any] = {
        name: {"low": low, "high": high} for name, (low, high) in table.bounds.items()
    }
    columns |= {name: {"values": list(values)} for name, values in table.values.items()}
    if table is ADULT:
        columns |= {"workclass": {"values": ["Private"], "missing_codes": ["?"]}}
    return toml(
        model={"name": "sums"},
        data={
            "dataset": None,
            "kind": "table",
            "train": "site-{edge}.csv",
            "rows": most,
            "columns": columns,
        },
        edges={"count": SITES},
        privacy={"epsilon": epsilon},
        ask={"questions": list(questions)},
    )
