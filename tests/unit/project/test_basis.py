"""`tacit basis`: axes of public records; private ones are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import zipfile
from contextlib import ExitStack
from pathlib import Path

import numpy as np
import pytest
import torch
from numpy.lib import format as npy
from PIL import Image
from tacit_services.cli.main import main
from tacit_services.identity import own_ledgers

from tacit.datasets.features.public_basis import Projection, digest, says, write
from tacit.known_data.owned import Owned
from tests.helpers.processes import environment


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "home"))
    return tmp_path / "home" / "tacit"


def tacit(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert isinstance(ended.value.code, int)
    return ended.value.code


def arrays(folder: Path) -> Path:
    x = np.random.default_rng(1).integers(0, 256, (80, 1, 8, 8)).astype(np.uint8)
    np.savez(folder / "rows.npz", x=x)
    return folder / "rows.npz"


def pictures(folder: Path) -> Path:
    (folder / "photos").mkdir()
    for number, x in enumerate(np.load(arrays(folder))["x"]):
        Image.fromarray(x[0]).save(folder / "photos" / f"{number:02}.png")
    return folder / "photos"


def test_pictures_and_arrays_of_the_same_records_have_the_same_basis(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    photos = pictures(tmp_path)
    constants = []
    for name, public in (("a", tmp_path / "rows.npz"), ("b", photos)):
        out = tmp_path / f"{name}.safetensors"
        command = ["basis", str(out), "--public", str(public), "--axes", "5", "--size", "8"]
        assert tacit(*command, "--features", "scattering") == 0
        step = Projection(out, digest(out), 5, 0.5)
        assert step.shape_of((81, 2, 2)) == (5,)
        assert digest(out) in capsys.readouterr().out
        constants.append(step._constants())
        assert says(out) == f"80 records of {public.name}, after scattering"
    assert all(
        np.allclose(first, second, atol=1e-3) for first, second in zip(*constants, strict=True)
    )


def test_published_data_is_named(tmp_path: Path) -> None:
    out = tmp_path / "digits.safetensors"
    command = ["basis", str(out), "--public", "digits", "--axes", "20", "--most", "300"]
    assert tacit(*command) == 0
    assert says(out).startswith("300 records of digits")


def test_the_same_records_make_the_same_file(tmp_path: Path) -> None:
    mean, axes, variances = torch.arange(4.0), torch.eye(2, 4), torch.ones(2)
    digests = set()
    for number in range(12):  # as many as chance would hardly write alike
        write(tmp_path / f"{number}", mean, axes, variances, "two axes")
        digests.add(digest(tmp_path / f"{number}"))
    assert len(digests) == 1


MEASURED = """
import sys
from tacit_services.cli.main import main
try:
    main(sys.argv[1:])
finally:
    print([line for line in open("/proc/self/status") if line.startswith("VmHWM")][0].split()[1])
"""
RECORDS, BLOCK = 684_000, 4_000  # of 784 numbers of 4 bytes: 2 GiB


def two_gibibytes(path: Path) -> None:
    """Write random records, as an npz or a safetensors file."""
    block = np.random.default_rng(1).random((BLOCK, 1, 28, 28), dtype=np.float32)
    shape = (RECORDS, 1, 28, 28)
    with ExitStack() as stack:
        if path.suffix == ".npz":
            archive = stack.enter_context(zipfile.ZipFile(path, "w"))
            file = stack.enter_context(archive.open("x.npy", "w", force_zip64=True))
            header = {"descr": "<f4", "fortran_order": False, "shape": shape}
            npy.write_array_header_1_0(file, header)
        else:
            file = stack.enter_context(path.open("wb"))
            end = RECORDS * 784 * 4
            layout = json.dumps({"x": {"dtype": "F32", "shape": shape, "data_offsets": [0, end]}})
            file.write(len(layout).to_bytes(8, "little") + layout.encode())
        for _ in range(RECORDS // BLOCK):
            file.write(block.tobytes())


@pytest.mark.exhaustive
@pytest.mark.parametrize("suffix", [".npz", ".safetensors"])
def test_two_gibibytes_take_less_than_one(tmp_path: Path, suffix: str) -> None:
    public = tmp_path / f"big{suffix}"
    two_gibibytes(public)
    command = ["basis", str(tmp_path / "b"), "--public", str(public), "--axes", "64", "--high", "1"]
    completed = subprocess.run(
        [sys.executable, "-c", MEASURED, *command],
        capture_output=True,
        text=True,
        check=True,
        env=environment(),
    )
    public.unlink()
    assert f"{RECORDS} records" in completed.stdout
    assert int(completed.stdout.split()[-1]) < 1 << 20  # KiB


def test_what_a_ledger_knows_is_refused(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    public, out = arrays(tmp_path), tmp_path / "b.safetensors"
    command = ["basis", str(out), "--public", str(public), "--axes", "3"]
    assert tacit(*command) == 0  # the control
    out.unlink()
    own_ledgers.place(Owned("ward", digest(public), "row", ""), 0, home)
    assert tacit(*command) == 5
    assert "a ledger knows it (as ward)" in capsys.readouterr().err
    assert not out.exists()


@pytest.mark.parametrize(
    ("public", "code"),
    [("photos/a", 5), ("site12", 5), ("site12/a", 5), ("", 5), ("public", 0), ("photos2/a", 0)],
)
def test_a_part_of_a_folder_that_a_ledger_knows_is_refused(
    tmp_path: Path, home: Path, capsys: pytest.CaptureFixture[str], public: str, code: int
) -> None:
    photos = pictures(tmp_path)
    for name in ("site12", "public", "photos2", "own"):
        shutil.copytree(photos, tmp_path / name / "a")
    photos.rename(tmp_path / "own" / "b")
    (tmp_path / "own").rename(photos)
    for name in ("photos", "site{edge}"):
        own_ledgers.place(Owned(str(tmp_path.resolve() / name), name, "row", ""), 0, home)
    command = ["basis", str(tmp_path / "b.safetensors"), "--axes", "3", "--size", "8"]
    assert tacit(*command, "--public", str(tmp_path / public)) == code
    assert ("a ledger knows it (as" in capsys.readouterr().err) == (code == 5)


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (["--axes", "81"], "80 records of 64 numbers have fewer"),
        (["--axes", "3", "--features", "fourier"], "--features fourier: expected upright"),
    ],
)
def test_what_cannot_be_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], more: list[str], message: str
) -> None:
    out = tmp_path / "b.safetensors"
    assert tacit("basis", str(out), "--public", str(arrays(tmp_path)), *more) in (2, 3)
    assert message in capsys.readouterr().err
    out.touch()
    assert tacit("basis", str(out), "--public", str(arrays(tmp_path)), "--axes", "3") == 2
    assert "nothing is overwritten" in capsys.readouterr().err


def test_published_colours_become_grey_and_of_the_size_asked(
    tmp_path: Path, data_root: Path | None
) -> None:
    if data_root is None:
        pytest.skip("no folder of published data")
    out = tmp_path / "photos.safetensors"
    command = ["basis", str(out), "--public", "cifar10", "--axes", "20", "--most", "300"]
    assert tacit(*command, "--channels", "1", "--size", "28", "--data", str(data_root)) == 0
    step = Projection(out, digest(out), 20, 0.5)
    assert step.shape_of((1, 28, 28)) == (20,)
    assert says(out).startswith("300 records of cifar10")


@pytest.mark.parametrize(
    ("public", "more", "message"),
    [
        ("digits", ["--channels", "3"], "--channels 3: digits has 1"),
        ("adult", ["--size", "28"], "--public adult: has no pictures; leave --size out"),
    ],
)
def test_what_cannot_be_brought_to_a_form_is_said(
    tmp_path: Path,
    data_root: Path | None,
    capsys: pytest.CaptureFixture[str],
    public: str,
    more: list[str],
    message: str,
) -> None:
    if data_root is None:
        pytest.skip("no folder of published data")
    command = ["basis", str(tmp_path / "b"), "--public", public, "--axes", "2"]
    assert tacit(*command, *more, "--data", str(data_root)) == 2
    assert message in capsys.readouterr().err
