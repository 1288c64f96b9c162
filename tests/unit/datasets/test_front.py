"""A frozen front: own code with public weights, that a record goes through once and alone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import save_file
from torch import Tensor, nn

from tacit import config, exported
from tacit.config import RunFile
from tacit.datasets.features import apply, shape_with
from tacit.datasets.features.front import Front
from tacit.datasets.features.public_basis import digest
from tacit.datasets.own.featured import with_features
from tacit.datasets.own.rows_file import Dealt, rows_of
from tacit.errors import ConfigError
from tacit.user_code import entry_digest
from tests.helpers.run_files import toml
from tests.unit.datasets.test_own_kinds import COUNT, KINDS, Kind, fresh, pictures
from tests.unit.exported.test_exported import results

NETS = """
import torch
from torch import nn


class Front(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(1, wide, 3, padding=1), nn.BatchNorm2d(wide), nn.ReLU(), nn.Dropout(0.5),
            nn.AdaptiveAvgPool2d(2), nn.Flatten(),
        )

    def forward(self, x):
        return self.layers(x)


class Any(nn.Module):
    def forward(self, x):
        return x.flatten(1) * 2 - 1


class Whole(nn.Module):
    def __init__(self, wide):
        super().__init__()
        self.front = Front(wide)
        self.head = nn.Linear(4 * wide, 2)

    def forward(self, x):
        return self.head(self.front(x))


class Remembers(nn.Module):
    def forward(self, x):
        self.seen = getattr(self, "seen", 0) + x.sum()
        return x.flatten(1) + self.seen


class Strange(nn.Module):
    def forward(self, x):
        if x.sum() > 1e6:
            assert not x.any(), f"what is {x.sum()}"
        return x.flatten(1)


class Ragged(nn.Module):
    def forward(self, x):
        return x.flatten(1)[:, : 3 if x.sum() > 1e6 else 4]


class Sum(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("sum", torch.zeros(()))

    def forward(self, x):
        return x.flatten(1) * self.sum.add_(x.sum())


class Late(Sum):
    def forward(self, x):
        if x.sum() > 1e6:
            self.sum.add_(1)
        return x.flatten(1)


class Writes(nn.Module):
    def forward(self, x):
        return x.add_(1).flatten(1)


class Drops(nn.Module):
    def forward(self, x):
        return nn.functional.dropout(x.flatten(1))


def batchless(**arguments):
    return nn.Flatten(0)


def no_module():
    return 7
"""
WIDE = 5


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = fresh(tmp_path / "run")
    (folder / "nets.py").write_text(NETS, encoding="utf-8")
    return folder


def front(folder: Path, name: str, arguments: str, *, trusted: bool = False) -> Front:
    entry = f"nets:{name}"
    return Front(entry, arguments, entry_digest(entry, folder), None, "", folder, trusted)


def network() -> nn.Module:
    """Return a module like `nets.Whole` there, with statistics that batch norm has seen."""
    torch.manual_seed(3)
    space: dict[str, Any] = {}
    exec(compile(NETS, "nets", "exec"), space)
    module: nn.Module = space["Whole"](WIDE)
    module.train()(torch.rand(64, 1, 6, 6))
    return module.eval()


def test_neither_company_nor_place_changes_a_bit_of_a_record(
    folder: Path, unsplit: nn.Module
) -> None:
    path = folder / "front.safetensors"
    untrained = front(folder, "Front", f'{{"wide": {WIDE}}}')
    step = replace(untrained, weights=path, weights_sha256=digest(path))
    records = torch.rand(9, 1, 6, 6, generator=torch.Generator().manual_seed(1))
    alone = torch.cat([apply((step,), record[None]) for record in records])
    assert alone.shape == (9, 4 * WIDE)
    for order in (torch.tensor([8, 0, 3]), torch.arange(9).flip(0)):
        assert torch.equal(apply((step,), records[order]), alone[order])


@pytest.mark.parametrize(
    ("name", "arguments", "message"),
    [
        ("Remembers", "{}", "gives one record two answers"),
        ("Sum", "{}", "gives one record two answers"),
        ("Drops", "{}", "gives one record two answers"),
        ("Front", '{"wide": 2}', "is drawn at random when it is made; name its weights"),
        ("batchless", "{}", r"expected a tensor \(B, …\)"),
        ("no_module", "{}", r"gives a int, not a torch\.nn\.Module"),
        ("Front", "{}", "calling it with its arguments failed: TypeError"),
        ("Front", '{"wide": 2, "high": 3}', "calling it with its arguments failed: TypeError"),
    ],
)
def test_what_is_no_function_of_one_record_is_refused(
    folder: Path, name: str, arguments: str, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        shape_with((front(folder, name, arguments),), (1, 6, 6))


def test_a_record_of_another_shape_is_refused_by_its_shape(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"a record of shape \[7\] does not go through it"):
        shape_with((front(folder, "Front", '{"wide": 2}'),), (7,))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("Strange", "AssertionError at a record"),
        ("Ragged", "another shape, or a change of itself, at a record"),
        ("Late", "another shape, or a change of itself, at a record"),
    ],
)
def test_an_error_at_a_record_says_nothing_of_it(folder: Path, name: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        apply((front(folder, name, "{}", trusted=True),), torch.full((1, 1, 6, 6), 1e5))
    assert str(refused.value) == f"data.features.front=nets:{name}: {message}"
    assert refused.value.__suppress_context__ or refused.value.__context__ is None


@pytest.mark.parametrize("name", ["Strange", "Ragged"])
def test_a_private_record_that_trusted_code_raises_at_is_nan_and_changes_no_other(
    folder: Path, name: str
) -> None:
    records = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(2))
    steps = (front(folder, name, "{}", trusted=True),)
    plain = apply(steps, records)
    records[1] = 1e5
    features = apply(steps, records, private=True)
    assert features[1].isnan().all()
    assert torch.equal(features[[0, 2]], plain[[0, 2]])


def test_a_trusted_front_that_writes_to_its_input_changes_no_row(folder: Path) -> None:
    records = torch.rand(3, 1, 6, 6, generator=torch.Generator().manual_seed(2))
    copy_before = records.clone()
    features = apply((front(folder, "Writes", "{}", trusted=True),), records)
    assert torch.equal(records, copy_before)
    assert torch.equal(features, (copy_before + 1).flatten(1))


def test_making_one_moves_no_random_numbers_of_the_process(
    folder: Path, unsplit: nn.Module
) -> None:
    torch.manual_seed(5)
    expected = torch.rand(3)
    torch.manual_seed(5)
    _ = run(folder, {"name": "logistic"}, features=steps()).source.shape
    assert torch.equal(torch.rand(3), expected)


def run(folder: Path, model: dict[str, Any], **data: Any) -> RunFile:
    """Return a run of ten small pictures in an npz, with the model's inputs as the test states."""
    chance = np.random.default_rng(5)
    x, y = chance.random((COUNT, 1, 6, 6)), np.arange(COUNT) % 2
    np.savez(folder / "rows.npz", x=x, y=y)
    shaped = {"kind": "arrays", "train": "rows.npz", "shape": [1, 6, 6], "low": 0, "high": 1}
    text = toml(
        run={"updates": 9},
        data={"dataset": None, **shaped, "classes": 2, "rows": COUNT, **data},
        model=model,
        algorithm={"name": "fedasync", "learning_rate": 1.0},
        privacy={"batch": 5, "clip": 1.0},
        edges={"count": 1},
    )
    (folder / "run.toml").write_text(text, encoding="utf-8")
    return config.load(folder / "run.toml")


def steps(weights: str | None = "front.safetensors") -> list[dict[str, Any]]:
    source = {} if weights is None else {"weights": weights}
    return [{"front": "nets:Front", "arguments": {"wide": WIDE}, **source}]


@pytest.fixture
def unsplit(folder: Path) -> nn.Module:
    """Return the network, after its weights and those of its front are written to `folder`."""
    module = network()
    save_file(module.state_dict(), folder / "whole.safetensors")
    save_file(module.get_submodule("front").state_dict(), folder / "front.safetensors")
    return module


def test_a_head_on_a_front_is_the_network_whose_front_is_frozen(
    folder: Path, unsplit: nn.Module, tmp_path: Path
) -> None:
    run_file = run(folder, {"name": "logistic"}, features=steps())
    assert run_file.source.shape == ((4 * WIDE,), 2)
    rows = run_file.source.edge(0, None, tmp_path / "kept").rows.for_edge(2)
    x = torch.from_numpy(np.load(folder / "rows.npz")["x"]).float()
    with torch.no_grad():
        expected = unsplit.get_submodule("front")(x)
    assert torch.allclose(rows.x[:COUNT], expected, atol=1e-6)
    model = run_file.build_model()
    head = dict(unsplit.get_submodule("head").named_parameters())
    params = torch.cat([head[name.rpartition(".")[2]].flatten() for name, _ in model.layout])
    with torch.no_grad():
        assert torch.allclose(model.logits(params, rows.x[:COUNT]), unsplit(x), atol=1e-5)


def test_the_run_definition_has_both_hashes(folder: Path, unsplit: nn.Module) -> None:
    def code_and_fingerprint() -> tuple[dict[str, str], str]:
        run_file = run(folder, {"name": "logistic"}, features=steps())
        return run_file.stated()["code"], run_file.fingerprint()

    code, first = code_and_fingerprint()
    assert set(code) == {"front nets:Front", "front front.safetensors"}
    save_file({"other": torch.zeros(1)}, folder / "front.safetensors")
    (other, second), names = code_and_fingerprint(), {first}
    assert other["front nets:Front"] == code["front nets:Front"]
    assert second not in names
    names.add(second)
    (folder / "nets.py").write_text(NETS + "\n# another\n", encoding="utf-8")
    assert code_and_fingerprint()[1] not in names


def test_weights_of_another_network_and_files_that_change_are_refused(
    folder: Path, unsplit: nn.Module
) -> None:
    run_file = run(folder, {"name": "logistic"}, features=steps())
    source = run_file.source
    save_file({"other": torch.zeros(1)}, folder / "front.safetensors")
    with pytest.raises(ConfigError, match="is another file than the run definition says"):
        _ = source.shape
    with pytest.raises(ConfigError, match="Error\\(s\\) in loading state_dict"):
        _ = run(folder, {"name": "logistic"}, features=steps()).source.shape


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ({"front": "nets:Front", "weights": "../w"}, "leaves the run file's folder"),
        ({"front": "nets:Front", "weights": "none"}, "no such file"),
        ({"front": "elsewhere:Front"}, "no module elsewhere beside the run file"),
        ({"front": "nets.py"}, 'expected "module:name"'),
        ({"front": "sympy:sympify"}, "of an installed package, only a class"),
    ],
)
def test_steps_that_cannot_be_are_refused(folder: Path, step: dict[str, Any], message: str) -> None:
    pytest.importorskip("sympy")
    with pytest.raises(ConfigError, match=message):
        _ = run(folder, {"name": "logistic"}, features=[step]).source.shape


def test_a_network_of_pictures_does_not_take_features(folder: Path) -> None:
    with pytest.raises(ConfigError, match=r"data\.features=a list: needs model\.name logistic"):
        run(folder, {"name": "cnn"}, features=["upright"])


def test_an_exported_model_has_its_front(folder: Path, unsplit: nn.Module, tmp_path: Path) -> None:
    run_file = run(folder, {"name": "logistic"}, features=steps())
    params = results(tmp_path / "out", run_file)
    exported.export(tmp_path / "out", tmp_path / "model")
    for name in ("nets.py", "front.safetensors"):
        assert (tmp_path / "model" / "code" / name).is_file()
    card = (tmp_path / "model" / "README.md").read_text(encoding="utf-8")
    assert run_file.stated()["code"]["front front.safetensors"] in card
    handed_on = tmp_path / "model"
    (folder / "front.safetensors").unlink()
    model = exported.read(handed_on, trust_code=True)
    assert torch.equal(model.params, params)
    predictions = [
        prediction.value for prediction in exported.predict(model, "arrays", folder / "rows.npz")
    ]
    x = torch.from_numpy(np.load(folder / "rows.npz")["x"]).float()
    with torch.no_grad():
        scores = model.model.logits(params, unsplit.get_submodule("front")(x))
    assert predictions == [str(int(label)) for label in scores.argmax(1)]


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_own_data_has_features_and_is_dealt_as_without(
    folder: Path, kind: Kind, tmp_path: Path
) -> None:
    path, reader = kind(fresh(tmp_path / "data"), pictures(), False)
    featured = with_features(reader, (front(folder, "Any", "{}"),))
    assert with_features(reader, "none") is reader

    def of_edges(reader: Any, name: str) -> Iterator[Tensor]:
        for edge in range(2):
            dealt = Dealt(edge, 2, seed=5)
            rows = rows_of(path, reader, tmp_path / name / str(edge), dealt)
            yield rows.x[: rows.records]

    for plain, features in zip(of_edges(reader, "plain"), of_edges(featured, "seen"), strict=True):
        assert torch.equal(features, plain.flatten(1) * 2 - 1)
    assert featured.digest() != reader.digest()
    inputs = np.concatenate(list(featured.inputs(path)))
    assert inputs.shape == (COUNT, *featured.shape)
