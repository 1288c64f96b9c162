"""Real run files become offers, which host and member read as one definition."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image
from safetensors.torch import save_file
from tacit_services.offers.offer import Offer
from tacit_services.offers.offer_reading import (
    CodeNeeded,
    OtherFile,
    definition_at_host,
    definition_at_member,
)
from tacit_services.offers.packing import PackedOffer

from tacit.config.own_table import TableData
from tacit.config.site import MOST_MEMBERS, Site
from tacit.errors import ConfigError
from tests.helpers.offered import TABLE, changed, federations_run, fetched, packed, table
from tests.helpers.own_texts import NUMBERS, vocabulary

NETS = """
import torch
from torch import nn


def net(width, outputs=2):
    return nn.Sequential(nn.Linear(width, 8), nn.Tanh(), nn.Linear(8, outputs))


class Low(nn.Module):
    def __init__(self):
        super().__init__()
        self.base = nn.Linear(2, 2)
        self.down = nn.Linear(2, 1, bias=False)
        self.up = nn.Linear(1, 2, bias=False)

    def forward(self, x):
        return self.base(x) + self.up(self.down(x))


class Bag(nn.Module):
    def __init__(self, words):
        super().__init__()
        self.words = nn.Embedding(words, 4)
        self.head = nn.Linear(4, 2)

    def forward(self, x):
        return self.head(self.words(x).mean(-2))


class Branch(nn.Module):
    def __init__(self):
        super().__init__()
        self.head = nn.Linear(2, 2)

    def forward(self, x):
        if x.sum() > 0:
            return self.head(x)
        return self.head(-x)


def front():
    return nn.Sequential(nn.Linear(2, 3), nn.Tanh())
"""
READER = """
import numpy as np


class Rows:
    def __init__(self, path):
        self.rows = np.load(path)["x"]

    def __len__(self):
        return len(self.rows)

    def __getitem__(self, number):
        return self.rows[number], int(self.rows[number][0] > 0.5)
"""
RULE = """
from tacit.algorithms import LocalRule


class Plain(LocalRule):
    def step(self, params, gradient, start, number):
        return params - 0.5 * gradient
"""
SERVER = """
import sys

from tacit.algorithms import AlgorithmServer, AlgorithmSettings, OwnStepsTask, ServerAlgorithm


class Settings(AlgorithmSettings):
    def computes(self):
        return OwnStepsTask(entry="rules:Plain", steps=2)


class Server(AlgorithmServer):
    def apply(self, update, weight):
        return self.params - update.params


class Own(ServerAlgorithm):
    settings = Settings
    role = Server
"""


def _arrays(folder: Path) -> Path:
    random = np.random.default_rng(1)
    x = random.random((300, 2)).astype("float32")
    np.savez(folder / "rows.npz", x=x, y=(x[:, 0] > 0.5).astype("int64"))
    return folder / "rows.npz"


def _pictures(folder: Path) -> Path:
    random = np.random.default_rng(1)
    for name in ("dark", "light"):
        (folder / "mine" / name).mkdir(parents=True)
        for number in range(20):
            low = 0 if name == "dark" else 128
            pixels = random.integers(low, low + 128, (8, 8), dtype="uint8")
            Image.fromarray(pixels).save(folder / "mine" / name / f"{number}.png")
    return folder / "mine"


def _texts(folder: Path) -> Path:
    words = ["bill", "pain"]
    lines = ["note,desk", *(f"{words[number % 2]} and more,{number % 2}" for number in range(300))]
    (folder / "notes.csv").write_text("\n".join(lines) + "\n")
    return folder / "notes.csv"


def _table(folder: Path) -> Path:
    return table(folder / "mine.csv", 300, seed=5)


ARRAYS: dict[str, Any] = {
    "kind": "arrays", "dataset": None, "shape": [2], "low": 0.0, "high": 1.0, "classes": 2,
    "rows": 400, "target": None, "columns": None,
}  # fmt: skip
IMAGES: dict[str, Any] = {
    "kind": "images", "dataset": None, "classes": ["dark", "light"], "size": 8, "channels": 1,
    "rows": 100, "target": None, "columns": None,
}  # fmt: skip
TEXT: dict[str, Any] = {
    "kind": "table", "dataset": None, "target": "desk", "rows": 400,
    "columns": {"note": {"text": "vocabulary.json", "length": 6}, "desk": {"values": [0, 1]}},
}  # fmt: skip
PYTHON = ARRAYS | {"kind": "python", "entry": "readers:Rows"}
PLAIN = {"name": "python", "entry": "nets:net", "arguments": {"width": 2}}


@dataclass(frozen=True)
class Kind:
    """A run of some data and model. rows: writes a member's. files: that members fetch."""

    sections: dict[str, Any]
    rows: Callable[[Path], Path]
    files: tuple[str, ...] = ()
    at_host: tuple[str, ...] = ()
    code: tuple[str, ...] = ()


GRAPH = ("model.graph.json", "model.safetensors")
KINDS = {
    "a table": Kind({}, _table),
    "arrays": Kind({"data": ARRAYS, "model": {"name": "mlp", "hidden": [4]}}, _arrays),
    "pictures": Kind({"data": IMAGES, "model": {"name": "cnn", "channels": [4], "kernel": 3}}, _pictures),
    "a text": Kind(
        {"data": TEXT, "model": {"name": "python", "entry": "nets:Bag", "arguments": {"words": len(NUMBERS)}}},
        _texts, (*GRAPH, "vocabulary.json"),
    ),
    "a module": Kind({"model": PLAIN}, _table, GRAPH),
    "a graph": Kind({"model": {"name": "graph", "file": "net.graph.json"}}, _table, ("net.graph.json", "net.safetensors")),
    "low-rank additions to a public start": Kind(
        {
            "data": ARRAYS,
            "model": {"name": "python", "entry": "nets:Low", "weights": "base.safetensors", "trainable": ["up.*", "down.*"]},
        },
        _arrays, GRAPH,
    ),
    "a front": Kind(
        {"data": ARRAYS | {"features": [{"front": "nets:front", "weights": "front.safetensors"}]}, "model": {"name": "logistic"}},
        _arrays, ("front-0.graph.json", "front-0.safetensors"),
    ),
    "a reader of the owner's": Kind({"data": PYTHON}, _arrays, at_host=("readers.py",), code=("readers:Rows",)),
    "an own algorithm with a rule at sites": Kind(
        {"algorithm": {"entry": "servers:Own", "name": None, "learning_rate": None, "steps_min": None}},
        _table, at_host=("servers.py", "rules.py"), code=("rules:Plain",),
    ),
    "metrics of the host's own": Kind(
        {"evaluation": {"metrics": ["judges:share"]}}, _table, at_host=("judges.py",)
    ),
}  # fmt: skip


def researchers(folder: Path) -> Path:
    """Write all that the run files here name, and return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "nets.py").write_text(NETS)
    (folder / "readers.py").write_text(READER)
    (folder / "rules.py").write_text(RULE)
    (folder / "servers.py").write_text(SERVER)
    (folder / "judges.py").write_text("def share(scores, y):\n    return 0.5\n")
    vocabulary(folder)
    base = torch.Generator().manual_seed(1)
    front = {"0.weight": torch.randn(3, 2, generator=base), "0.bias": torch.zeros(3)}
    save_file(front, folder / "front.safetensors")
    save_file({"base.weight": torch.randn(2, 2, generator=base)}, folder / "base.safetensors")
    return folder


def offered(kind: str, folder: Path) -> PackedOffer:
    """Return the packed offer of a kind."""
    place = researchers(folder / "researcher")
    if kind == "a graph":
        _freeze(place)
    return packed(place, federations_run(**KINDS[kind].sections))


def _freeze(folder: Path) -> None:
    from tacit.config.frozen_sections import frozen_model
    from tacit.models.graph.frozen_entry import FreezeRequest

    request = FreezeRequest(
        "nets:net", folder, (2,), None, {"width": 2}, 0, None, 0, 0, ("*",), None
    )
    frozen = frozen_model(request)
    (folder / "net.graph.json").write_text(frozen.graph.text())
    (folder / "net.safetensors").write_bytes(frozen.file)


def with_code(kind: str, folder: Path, place: Path) -> None:
    """Put the code that an offer of this kind needs into a member's folder, as its owner does."""
    for entry in KINDS[kind].code:
        shutil.copy(folder / "researcher" / f"{entry.partition(':')[0]}.py", place)


@pytest.mark.parametrize("kind", KINDS)
def test_host_and_member_read_one_definition(kind: str, tmp_path: Path) -> None:
    # Given
    offer = offered(kind, tmp_path)
    place = fetched(offer, tmp_path / "member")
    with_code(kind, tmp_path, place)
    rows = KINDS[kind].rows(tmp_path)
    # When
    site = Site(MOST_MEMBERS - 1, rows, rows=290)
    member = definition_at_member(offer.offer, place, site).define()
    host = definition_at_host(offer.offer, offer.folder, offer.test).define()
    # Then
    assert member.fingerprint == host.fingerprint
    assert member.agreed == host.agreed
    assert member.terms == host.terms
    assert member.build_model().size == host.build_model().size
    assert f"edge-{site.number}" in host.worker_names
    assert set(offer.offer.files) == set(KINDS[kind].files)
    assert set(offer.at_host) == set(KINDS[kind].at_host)
    assert set(offer.offer.code) == set(KINDS[kind].code)
    assert str(tmp_path).encode() not in offer.offer.content()  # no path of the researcher's
    assert member.source.edge(site.number, None, tmp_path / "keep").most > 290


def test_columns_stand_in_the_order_that_the_researcher_wrote(tmp_path: Path) -> None:
    offer = offered("a table", tmp_path)
    site = Site(0, _table(tmp_path))
    run = definition_at_member(offer.offer, fetched(offer, tmp_path / "member"), site)
    assert isinstance(run.data, TableData)
    assert list(run.data.columns) == ["dose", "age", "ill"]
    host = definition_at_host(offer.offer, offer.folder)
    assert host.data == run.data


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].files])
def test_one_byte_changed_in_a_file_is_refused_by_its_name(kind: str, tmp_path: Path) -> None:
    offer = offered(kind, tmp_path)
    place = fetched(offer, tmp_path / "member")
    site = Site(0, KINDS[kind].rows(tmp_path))
    for name in offer.offer.files:
        content = (place / name).read_bytes()
        for at in (0, len(content) // 2, len(content) - 1):
            other = bytearray(content)
            other[at] ^= 1
            (place / name).write_bytes(other)
            with pytest.raises(OtherFile, match=name):
                definition_at_member(offer.offer, place, site)
            with pytest.raises(OtherFile, match=name):
                definition_at_host(offer.offer, place)
        (place / name).write_bytes(content)
    definition_at_member(offer.offer, place, site)


def test_a_file_that_is_missing_a_link_or_behind_one_is_refused(tmp_path: Path) -> None:
    # Given
    offer = offered("a module", tmp_path)
    place = fetched(offer, tmp_path / "member")
    site = Site(0, _table(tmp_path))
    file = place / "model.safetensors"
    # When
    file.rename(tmp_path / "elsewhere")
    # Then
    with pytest.raises(OtherFile, match=r"model\.safetensors"):
        definition_at_member(offer.offer, place, site)
    file.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OtherFile, match=r"model\.safetensors: is a link"):
        definition_at_member(offer.offer, place, site)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if KINDS[kind].code])
def test_code_at_a_site_is_what_its_owner_put_there_and_the_offer_states(
    kind: str, tmp_path: Path
) -> None:
    offer = offered(kind, tmp_path)
    place = fetched(offer, tmp_path / "member")
    site = Site(0, KINDS[kind].rows(tmp_path))
    (entry,) = KINDS[kind].code
    with pytest.raises(CodeNeeded, match=entry) as missing:
        definition_at_member(offer.offer, place, site)
    assert missing.value.sha256 == offer.offer.code[entry]
    with_code(kind, tmp_path, place)
    definition_at_member(offer.offer, place, site)
    file = place / f"{entry.partition(':')[0]}.py"
    file.write_text(file.read_text() + "\n# another\n")
    with pytest.raises(CodeNeeded, match="other code is here"):
        definition_at_member(offer.offer, place, site)


@pytest.mark.parametrize("kind", KINDS)
def test_a_member_imports_no_module_of_an_offer(kind: str, tmp_path: Path) -> None:
    offer = offered(kind, tmp_path)
    place = fetched(offer, tmp_path / "member")
    with_code(kind, tmp_path, place)
    for name in ("nets", "readers", "rules", "servers", "judges"):
        sys.modules.pop(name, None)
        file = place / f"{name}.py"
        if not file.exists():
            file.write_text("raise SystemExit('executed')\n")
    definition_at_member(
        offer.offer, place, Site(0, KINDS[kind].rows(tmp_path))
    ).define().build_model()
    assert {"nets", "readers", "rules", "servers", "judges"}.isdisjoint(sys.modules)


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "rows in the run file": ({"data": TABLE | {"train": "mine.csv"}}, "data.train"),
    "a name of the owner's": ({"data": TABLE | {"name": "st-marys"}}, "data.name"),
    "spare places": ({"data": TABLE | {"spare": 3}}, "data.spare"),
    "no number of rows": ({"data": TABLE | {"rows": None}}, "data.rows"),
    "a vertical run": ({"algorithm": {"name": "vafl", "steps_min": None}}, "vafl"),
    "gossip": ({"algorithm": {"name": "adp2sgd", "steps_min": None}}, "adp2sgd"),
    "a trusted module": (
        {"model": {"name": "python", "entry": "nets:Branch", "control_flow": "trusted"}}, "trusted",
    ),
    "a module that branches": ({"model": {"name": "python", "entry": "nets:Branch"}}, "nets:Branch"),
    "a trusted front": (
        {"data": ARRAYS | {"features": [{"front": "nets:front", "control_flow": "trusted"}]}},
        "trusted",
    ),
    "noise at the server": ({"privacy": {"mechanism": "gaussian", "noise_at": "server"}}, "noise_at"),
}  # fmt: skip


@pytest.mark.parametrize("what", REFUSED)
def test_what_is_no_federations_run_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    sections, word = REFUSED[what]
    with pytest.raises(ConfigError, match=word) as refused:
        packed(researchers(tmp_path), federations_run(**sections))
    assert "\n" not in str(refused.value)


HOSTILE: dict[str, tuple[Callable[[dict[str, Any]], object], str]] = {
    "a module": (lambda file: file.update(model={"name": "python", "entry": "os:system"}), "is code"),
    "a front": (
        lambda file: file["data"].update(features=[{"front": "nets:front"}]), "front",
    ),
    "a file of the owner's": (lambda file: file["data"].update(train="/etc/passwd"), "data.train"),
    "the name of another's ledger": (lambda file: file["data"].update(name="theirs"), "data.name"),
    "others' people": (lambda file: file["data"].update(apart_from=["mine"]), "data.apart_from"),
    "a graph that is no file of it": (
        lambda file: file.update(model={"name": "graph", "file": "more.graph.json"}), "more",
    ),
    "a graph outside": (
        lambda file: file.update(model={"name": "graph", "file": "../net.graph.json"}), "leaves",
    ),
    "a reader": (lambda file: file.update(data=PYTHON | {"dataset": None}), "data"),
    "an algorithm without its task": (
        lambda file: file.update(algorithm={"name": "os:system"}), "algorithm",
    ),
    "peers": (lambda file: file.update(algorithm={"name": "adp2sgd"}), "adp2sgd"),
    "columns without an order": (
        lambda file: file["data"].update(columns={"ill": {"values": [0, 1]}}), "list of names",
    ),
    "a column twice": (
        lambda file: file["data"]["columns"].append(["ill", {"values": [0]}]), "twice",
    ),
    "an unknown key": (lambda file: file["privacy"].update(noise="off"), "noise"),
    "a section that is none": (lambda file: file.update(shell={"run": "rm"}), "shell"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_offer_is_refused_in_one_line(what: str, tmp_path: Path) -> None:
    change, word = HOSTILE[what]
    offer = offered("a module", tmp_path)
    place = fetched(offer, tmp_path / "member")
    (tmp_path / "net.graph.json").write_text("{}")
    file = {name: dict(keys) for name, keys in offer.offer.file.items()}
    change(file)
    hostile: Offer = changed(offer.offer, file=file)
    with pytest.raises(ConfigError, match=word) as refused:
        definition_at_member(hostile, place, Site(0, _table(tmp_path)))
    assert "\n" not in str(refused.value)
