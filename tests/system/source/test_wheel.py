"""The wheel as somebody installs it.

Outside the tree, with one extra, from the locks that the images are made of.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import zipfile
from pathlib import Path

import pytest
from tacit_services import laboratory

from tacit import config, exported
from tests.conftest import ROOT
from tests.helpers.wheels import Venv, built, edge_venv, locked, venv
from tests.system.testbed.test_local_run import run_file
from tests.unit.exported.test_exported import new_rows, results, written

pytestmark = pytest.mark.slow
PACKAGES = ("tacit", "tacit_services", "tacit_client")
FIGURE = "dp-pasgd-6"


def advice(extra: str) -> str:
    return f"tacit: this command needs tacit[{extra}]: pip install 'tacit[{extra}]'"


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the path of tacit's wheel."""
    return built(ROOT, tmp_path_factory.mktemp("wheel"))


@pytest.fixture(scope="module")
def edge(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Venv:
    """Install tacit[edge] alone, as the edge's image has it."""
    return edge_venv(tmp_path_factory.mktemp("edge") / "venv", wheel)


@pytest.fixture(scope="module")
def everything(edge: Venv, tmp_path_factory: pytest.TempPathFactory, wheel: Path) -> Venv:
    """Install tacit[run]: the edge's environment again, by hard links, and what is missing."""
    folder = tmp_path_factory.mktemp("run") / "venv"
    shutil.copytree(edge.folder, folder, copy_function=os.link, symlinks=True)
    environment = Venv(folder)
    environment.pip(
        "install", "--quiet", "--no-deps", "--no-index", "--force-reinstall", str(wheel)
    )  # its script, too
    locked(environment, "run")
    return environment


def test_every_top_level_name_begins_with_tacit_and_is_typed(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()

    assert {name.split("/")[0] for name in names} == {*PACKAGES, "tacit-0.2.0.dist-info"}
    assert {f"{package}/py.typed" for package in PACKAGES} <= set(names)
    services = ROOT / "services"
    pages = services / "tacit_services/aggregator/page"
    served = {
        str(path.relative_to(services))
        for folder in ("static", "swagger")
        for path in (pages / folder).iterdir()
    }
    assert served <= set(names)


def test_with_nothing_installed_the_command_says_what_to_install(
    wheel: Path, tmp_path: Path
) -> None:
    bare = venv(tmp_path / "venv", wheel)

    assert bare.refused("edge", "--help") == advice("edge")
    assert bare.refused("figures") == f"tacit: {laboratory.ADVICE}"
    assert bare.refused("plan") == advice("run")
    assert bare.refused() == advice("run")


@pytest.mark.exhaustive
def test_an_edge_needs_its_extra_alone(edge: Venv) -> None:
    for command in ("edge", "peer", "party"):
        completed = edge.run("tacit", command, "--help")
        assert (completed.returncode, completed.stderr) == (0, ""), completed

    assert edge.run("tacit", "--version").stdout == "tacit 0.2.0\n"
    assert "TACIT_RUN_FILE" in edge.refused("edge")  # it has been imported, and wants its settings
    loaded = edge.run(
        "python", "-c", "import tacit_client, tacit_services.peer.main, tacit_services.party.main"
    )
    assert (loaded.returncode, loaded.stderr) == (0, "")
    assert "No broken requirements" in edge.pip("check")


@pytest.mark.exhaustive
def test_an_exported_model_is_used_where_nothing_of_its_run_is(edge: Venv, tmp_path: Path) -> None:
    run = config.load(written(tmp_path / "run"))
    results(tmp_path / "out", run)
    exported.export(tmp_path / "out", edge.folder / "model")
    shutil.rmtree(tmp_path / "run")
    new_rows(edge.folder / "new.csv")
    completed = edge.run("tacit", "predict", "model", "--trust-code", "--table", "new.csv")
    assert completed.returncode == 0, completed
    assert re.fullmatch("note: new.csv: .* has none of its values .*\n", completed.stderr)
    assert completed.stdout.startswith("row,prediction,p(home),p(ward)\n1,")
    code = (
        "import sys, pathlib; from tacit import exported; "
        "found = exported.predict(exported.read(pathlib.Path('model'), trust_code=True), 'table', "
        "pathlib.Path('new.csv')); print(*(one.value for one in found)); "
        "assert not {'typer', 'httpx', 'paho', 'rich'} & set(sys.modules)"
    )
    library = edge.run("python", "-c", code)
    assert (library.returncode, library.stderr) == (0, ""), library
    assert library.stdout.split() == [
        line.split(",")[1] for line in completed.stdout.splitlines()[1:]
    ]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("extra", "command"),
    [
        ("run", ["run", "run.toml"]),
        ("figures", ["simulate", "run.toml"]),
        (
            "figures",
            [
                "plan",
                "privacy",
                "--epsilon",
                "2",
                "--pushes",
                "9",
                "--records",
                "99",
                "--plot",
                "a.png",
            ],
        ),
        ("aggregator", ["aggregator"]),
        ("aggregator", ["pki", "serve"]),
    ],
    ids=lambda value: value if isinstance(value, str) else "-".join(value[:2]),
)
def test_a_command_of_another_extra_names_it(edge: Venv, extra: str, command: list[str]) -> None:
    assert edge.refused(*command) == advice(extra)


@pytest.mark.exhaustive
def test_a_run_outside_the_tree(everything: Venv, tmp_path: Path) -> None:
    file = run_file(tmp_path, updates=60)

    completed = everything.run("tacit", "run", str(file), "--out", "out", "--json", cwd=tmp_path)

    assert completed.returncode == 0, completed.stderr
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["applied"] == 60
    assert (tmp_path / "out" / "plot.png").stat().st_size > 0
    assert "No broken requirements" in everything.pip("check")


@pytest.mark.exhaustive
def test_a_figure_from_kept_points_outside_the_tree(everything: Venv, tmp_path: Path) -> None:
    assert everything.refused("figures") == f"tacit: {laboratory.ADVICE}"
    (tmp_path / "dist").mkdir()
    lab = built(ROOT / "lab", tmp_path / "dist")
    everything.pip("install", "--quiet", "--no-deps", "--no-index", str(lab))
    folder = str(ROOT / "lab" / "figures")

    completed = everything.run(
        "tacit", "figures", FIGURE, "--quick", "--folder", folder, "--out", "out", cwd=tmp_path
    )

    assert completed.returncode == 0, completed.stderr
    assert (tmp_path / "out" / "index.html").stat().st_size > 10_000
    assert list((tmp_path / "out" / "points").iterdir()) == []  # nothing was measured anew
