"""`make golden`: this tree makes the same model bits as the commit that REFERENCE names last.

`python -m tests.golden.same_bits [--quick]` runs the files of experiments/, shortened as runs.toml
states, by `tests.golden.bits` of both trees. Then this tree replays the journals of the older one's
runs over MQTT. Beside them it makes the bits that `kept_bits` keeps in a file. The exit code is 1
where something differs.
--quick: one run for each algorithm name, none over MQTT.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from tests.golden import kept_bits
from tests.helpers.run_files import toml

ROOT = Path(__file__).resolve().parents[2]
REFERENCE = ROOT / "tests" / "golden" / "REFERENCE"  # lines: a commit, and why it was taken
RULES = tomllib.loads((ROOT / "tests" / "golden" / "runs.toml").read_text(encoding="utf-8"))
IMPORT_PATH = ("", "src", "services", "clients/python", "lab/src")  # folders of a tree
TACIT = "from tacit_services.start import main; main()"
PATIENCE = 1200.0  # seconds for one command: more than any takes, so that a hang is a failure
Bits = dict[str, Any]  # values by run and fact


class Failed(Exception):
    """A command failed; the message has its last line."""


def main() -> int:
    """Compare this tree with the reference, in a git worktree of its own."""
    quick, commit = "--quick" in sys.argv[1:], reference()
    names = RULES["quick"] if quick else tuple(shortened(ROOT))
    print(f"golden: {ROOT} beside {commit}", flush=True)
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        older = Path(folder) / "older"
        git("worktree", "add", "--quiet", "--detach", str(older), commit)
        try:
            lines = compare(older, ROOT, Path(folder), names, () if quick else RULES["mqtt"])
        finally:
            git("worktree", "remove", "--force", str(older))
    lines += kept_bits.differences()
    print("\n".join(f"DIFFERS {line}" for line in lines) or "golden: equal")
    return 1 if lines else 0


def compare(
    older: Path, newer: Path, folder: Path, names: Sequence[str], over_mqtt: Sequence[str] = ()
) -> list[str]:
    """Return one line for each difference. folder: for run files and results. Raises Failed."""
    for name, text in shortened(newer).items():
        (folder / f"{name}.toml").write_text(text, encoding="utf-8")
    files = [folder / f"{name}.toml" for name in names]
    with ThreadPoolExecutor(2) as pool:
        older_bits = pool.submit(bits, older, folder / "was", files)
        newer_bits = pool.submit(bits, newer, folder / "now", files)
    was, now = older_bits.result(), newer_bits.result()
    for missing in [f"{name}: {value}" for name, value in now.items() if name.endswith("no data")]:
        print(f"LEFT OUT {missing}")
        if "CI" in os.environ:
            raise Failed(f"{missing}, which CI must have")
    for name in over_mqtt:
        fact = f"over MQTT {name}: model"
        was[fact], now[fact] = replayed(older, newer, folder / f"{name}.toml")
    pairs = {fact: (was.get(fact, "absent"), now.get(fact, "absent")) for fact in was | now}
    return [
        f"{fact}: was {old}, is {new}"
        for fact, (old, new) in pairs.items()
        if old != new or fact.endswith("failed")
    ]


def shortened(tree: Path) -> dict[str, str]:
    """Return the texts of the shortened runs of experiments/, and of `also` in runs.toml."""
    paths = sorted((tree / "experiments").glob("*.toml"))
    files = {path.stem: tomllib.loads(path.read_text(encoding="utf-8")) for path in paths}
    runs = {name: (files[name], RULES["file"].get(name, {})) for name in files}
    for name, rule in RULES["also"].items():
        changes = {section: keys for section, keys in rule.items() if section != "like"}
        runs[name] = files[rule["like"]], changes
    texts = {}
    for name, (table, changes) in runs.items():
        algorithm = (table["algorithm"] | changes.get("algorithm", {}))["name"]
        texts[name] = toml(table, RULES["all"], RULES["algorithm"][algorithm], changes)
    return texts


def bits(tree: Path, out: Path, files: Sequence[Path]) -> Bits:
    """Return what `tree` makes of the runs. Raises Failed."""
    out.mkdir()
    python(tree, "-m", "tests.golden.bits", out, *files)
    content: Bits = json.loads((out / "bits.json").read_text(encoding="utf-8"))
    return content


def replayed(older: Path, newer: Path, file: Path) -> tuple[str, str]:
    """Return the model's digest of a run over MQTT of `older`, and of its journal in `newer`."""
    out, journal = file.with_suffix(".out"), file.with_suffix(".journal")
    python(older, "-c", TACIT, "run", file, "--out", out, "--journal", journal)
    summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    folded = json.loads(python(newer, "-c", TACIT, "replay", journal, "--json"))
    return summary["model_sha256"], folded["model_sha256"]


def python(tree: Path, *arguments: str | Path) -> str:
    """Return what Python prints in `tree`. Raises Failed."""
    return _output([sys.executable, *map(str, arguments)], tree, environment(tree))


def environment(tree: Path) -> dict[str, str]:
    """Return variables that put the tree first, without those that change results."""
    kinds = ("TACIT_", "PYTHON")
    variables = {name: value for name, value in os.environ.items() if not name.startswith(kinds)}
    if data := os.environ.get("TACIT_DATA"):
        variables["TACIT_DATA"] = str(Path(data).resolve())
    path = os.pathsep.join(str(tree / folder) for folder in IMPORT_PATH)
    return variables | {"PYTHONPATH": path, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}


def git(*arguments: str) -> str:
    """Return what git prints in this checkout. Raises Failed."""
    return _output(["git", *arguments], ROOT, None)


def _output(command: list[str], folder: Path, variables: dict[str, str] | None) -> str:
    process = subprocess.run(
        command, cwd=folder, env=variables, capture_output=True, text=True, timeout=PATIENCE
    )
    if process.returncode:
        complaint = f"exit code {process.returncode}\n{process.stderr.strip()}".splitlines()[-1]
        raise Failed(f"{folder}: {command[1]}: {complaint}")
    return process.stdout


def reference() -> str:
    """Return the commit that this tree is compared with."""
    return REFERENCE.read_text(encoding="utf-8").splitlines()[-1].split()[0]


if __name__ == "__main__":
    try:
        sys.exit(main())
    except Failed as failure:
        sys.exit(f"golden: {failure}")
