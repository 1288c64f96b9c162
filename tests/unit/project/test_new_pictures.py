"""`tacit new --images`: from a public folder of pictures to a run on private ones."""

from __future__ import annotations

import errno
import json
import random
import tomllib
from pathlib import Path

import pytest
from PIL import Image, ImageDraw
from tacit_services.identity import own_ledgers

from tacit import config
from tacit.config.own_arrays import ImagesData
from tests.helpers.processes import environment
from tests.system.examples.test_examples import trained
from tests.unit.project.test_new_and_check import tacit

KINDS = ("bar", "disc")


def draw(
    folder: Path, each: int, seed: int, size: tuple[int, int] = (16, 12), mode: str = "L"
) -> None:
    """Draw so many discs and bars on grey, a folder each."""
    chance = random.Random(seed)
    for kind in KINDS:
        (folder / kind).mkdir(parents=True)
        for number in range(each):
            picture = Image.new("L", size, chance.randint(0, 60))
            x, y = (chance.uniform(0.35, 0.65) * side for side in size)
            box = (x - 3, y - 3, x + 3, y + 3) if kind == "disc" else (x - 1, y - 5, x + 1, y + 5)
            ImageDraw.Draw(picture).ellipse(box, fill=chance.randint(120, 255))
            picture.convert(mode).save(folder / kind / f"{number}.png")


@pytest.fixture
def public(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return public pictures, in the folder where the commands are given."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    draw(tmp_path / "shown", 40, seed=1)
    return tmp_path / "shown"


def test_a_new_run_has_the_folders_classes_size_and_channels(public: Path) -> None:
    assert tacit("new", "ward", "--images", "shown") == 0
    folder = public.parent / "ward"
    assert {path.name for path in folder.iterdir()} == {
        "run.toml", "policy.toml", "README.md", ".gitignore", "public",
    }  # fmt: skip
    draw(folder / "train", 700, seed=2)
    run = config.load(folder / "run.toml")
    assert isinstance(run.data, ImagesData)
    assert (run.data.classes, run.data.size, run.data.channels) == (KINDS, (28, 28), 1)
    assert run.data.rows == 280  # counted: 1,400 pictures, five edges
    assert run.source.shape == ((512,), 2)
    test = run.source.test(None)
    assert test is not None
    assert len(test) == 80
    assert "Put the private pictures into `train`" in (folder / "README.md").read_text()


@pytest.mark.parametrize(
    ("each", "batch"), [(45, 4), pytest.param(600, 60, marks=pytest.mark.exhaustive)]
)
def test_a_new_run_is_checked_well_with_few_pictures(
    public: Path, capsys: pytest.CaptureFixture[str], each: int, batch: int
) -> None:
    assert tacit("new", "ward", "--images", "shown") == 0
    assert "public from now on: classes, grey or colours\n" in capsys.readouterr().out
    draw(public.parent / "ward" / "train", each, seed=3)
    assert tacit("check", "ward/run.toml") == 0
    assert "next: tacit run ward/run.toml" in capsys.readouterr().out
    assert config.load(public.parent / "ward" / "run.toml").privacy.batch == batch


@pytest.mark.parametrize(
    ("sizes", "mode", "expected"),
    [
        ([(20, 20)], "L", ((20, 20), 1)),
        ([(20, 20), (24, 20)], "RGB", ((32, 32), 3)),
        ([(300, 200)], "RGBA", ((32, 32), 3)),
        ([(6, 40)], "1", ((32, 32), 1)),
        ([(40, 40)], "I;16", ((40, 40), 1)),
    ],
)
def test_pictures_keep_their_size_where_it_is_small_and_one(
    public: Path, sizes: list[tuple[int, int]], mode: str, expected: tuple[tuple[int, int], int]
) -> None:
    for number, size in enumerate(sizes):
        for kind in KINDS:
            folder = public.parent / "other" / kind
            folder.mkdir(parents=True, exist_ok=True)
            Image.new(mode, size).save(folder / f"{number}.png")
    assert tacit("new", "ward", "--images", "other", "--model", "mine:Net") == 0
    data = tomllib.loads((public.parent / "ward" / "run.toml").read_text())["data"]
    size = data["size"]
    assert (tuple(size) if isinstance(size, list) else (size, size), data["channels"]) == expected


@pytest.mark.exhaustive
def test_sites_have_a_folder_each(public: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert tacit("new", "ward", "--images", "shown", "--sites", "2") == 0
    assert "put the private pictures into ward/siteN, then" in capsys.readouterr().out
    for site in range(2):
        draw(public.parent / "ward" / f"site{site}", 800, seed=site + 5)
    assert tacit("check", "ward/run.toml") == 0
    assert "1600 to 1600 rows an edge, 2000 taken" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (["--images", "nowhere"], 3, "--images nowhere: no such folder"),
        (["--images", "shown/bar"], 3, "expected a folder for each class"),
        (["--images", "shown", "--unit", "who"], 2, "--unit who: a folder of pictures says only"),
        (["--images", "shown", "--table", "x.csv"], 2, "a run begins with one"),
        (["--images", "strange"], 3, "bar/notes.txt: is no picture of PNG"),
        (["--images", "odd"], 2, "; rename it"),
        (["--images", "empty"], 3, "has no pictures"),
    ],
)
def test_what_cannot_be_guessed_is_said_in_one_line(
    public: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], code: int, message: str
) -> None:
    for name in ("strange", "empty"):
        for kind in KINDS:
            (public.parent / name / kind).mkdir(parents=True)
    for kind in (*KINDS, "x\udcff"):
        (public.parent / "odd" / kind).mkdir(parents=True)
    (public.parent / "strange" / "bar" / "notes.txt").write_text("none")
    assert tacit("new", "ward", *arguments) == code
    assert message in capsys.readouterr().err
    assert not (public.parent / "ward").exists()


def test_no_hidden_file_and_none_from_elsewhere_is_made_public(
    public: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (public / ".private").mkdir()
    (public / ".private" / "0.png").write_bytes((public / "bar" / "0.png").read_bytes())
    (public / "disc" / ".hidden").write_text("who it is")
    (public / "disc" / "again.png").symlink_to("0.png")
    assert tacit("new", "ward", "--images", "shown") == 0
    copied = public.parent / "ward" / "public"
    assert not [path for path in copied.rglob("*") if path.name.startswith(".")]
    assert len(list(copied.rglob("*.png"))) == 81
    assert not [path for path in copied.rglob("*") if path.is_symlink()]
    (public.parent / "secret.png").write_bytes((public / "bar" / "0.png").read_bytes())
    (public / "bar" / "linked.png").symlink_to("../../secret.png")
    assert tacit("new", "other", "--images", "shown") == 3
    assert "a picture is a link that leaves the folder" in capsys.readouterr().err


def test_pictures_that_a_ledger_knows_do_not_become_public(
    public: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert tacit("new", "ward", "--images", "shown") == 0
    draw(public.parent / "ward" / "train", 700, seed=2)
    owned = config.load(public.parent / "ward" / "run.toml").source.owned(0)
    assert owned is not None
    own_ledgers.place(owned, 0, public.parent / "home" / "tacit")
    capsys.readouterr()
    (public.parent / "ward" / "train").rename(public.parent / "renamed")
    assert tacit("new", "other", "--images", "renamed") == 5  # by its bytes
    assert "renamed: a ledger knows it" in capsys.readouterr().err
    assert not (public.parent / "other").exists()
    assert tacit("new", "other", "--images", "shown") == 0  # the control


def test_nothing_is_left_of_a_folder_that_could_not_be_made_whole(
    public: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as disk:
        disk.setattr("shutil.copyfile", full)
        assert tacit("new", "ward", "--images", "shown") == 2
    assert "ward: No space left" in capsys.readouterr().err
    for number in range(600):  # so many that not all are looked at before
        (public / "disc" / f"more-{number}.png").hardlink_to(public / "disc" / "0.png")
    (public / "disc" / "more-0.png").unlink()
    (public / "disc" / "more-0.png").symlink_to("nowhere.png")
    assert tacit("new", "ward", "--images", "shown") == 3
    assert "more-0.png: No such file" in capsys.readouterr().err
    assert not (public.parent / "ward").exists()


@pytest.mark.exhaustive
@pytest.mark.parametrize("mode", ["L", "RGB"])
def test_it_learns_as_it_is_written(public: Path, tmp_path: Path, mode: str) -> None:
    draw(tmp_path / "more", 100, seed=4, mode=mode)
    assert tacit("new", "ward", "--images", "more") == 0
    draw(tmp_path / "ward" / "train", 1500, seed=2, mode=mode)
    variables = environment(XDG_DATA_HOME=str(tmp_path / "home"))
    summary, _ = trained(tmp_path / "ward" / "run.toml", tmp_path / "out", variables)
    assert summary["privacy"]["epsilon"] <= 4
    assert summary["test_accuracy"] > 0.9
    assert json.loads((tmp_path / "out" / "summary.json").read_text())["constant"]
