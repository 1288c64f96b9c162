"""`tacit new`: a folder with a commented run file, the owner's policy, a module and a README."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ConfigError
from tacit_services.project.guess import Guess

RUN_FILE = """\
# {title}
# Check it:  tacit check {name}/run.toml      Train:  tacit run {name}/run.toml
# Every key: tacit keys

[run]
name = "{name}"
updates = {updates}  # of the model, by all edges together: as many as their budgets pay for

[data]
kind = "table"
{data}

# All that is read; bounds and values are public{guessed}.
[data.columns]
{columns}

[model]
{model}

[algorithm]
name = "fedasync"  # each edge takes a step and sends its model; nobody waits
learning_rate = {rate}
steps_min = 1

[privacy]
epsilon = 4.0  # what an edge's data may spend in its life, whatever run uses it
delta = 1e-5  # well below 1 / rows
pushes = {pushes}  # that the budget is divided among
batch = {batch}  # rows of a push, on average: about a tenth of `rows` is a good start
clip = 0.5  # no row moves an update by more

[edges]
count = {edges}

[evaluation]
every = {every}
"""
MODEL = """\
name = "python"
entry = "{entry}"  # a class or function beside this file
{arguments}"""
POLICY = """\
# What the owner of the data allows, whatever a run file says. Give it to an edge as TACIT_POLICY,
# or to `tacit run --policy`. A policy can only forbid.
max_epsilon = 4.0
max_delta = 1e-5
mechanisms = ["discrete_gaussian", "gaussian"]
"""
NETS = """\
\"\"\"The network that is trained: any torch.nn.Module that looks at one example at a time.\"\"\"

from torch import nn


class Net(nn.Module):
    \"\"\"One hidden layer. No BatchNorm and no Dropout: they look across examples, or draw.\"\"\"

    def __init__(self, inputs: int, outputs: int, hidden: int = 16) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(inputs, hidden), nn.Tanh(), nn.Linear(hidden, outputs)
        )

    def forward(self, x):
        return self.layers(x)
"""
README = """\
# {name}

Rows stay where they are; what leaves is noised, and counted.

    tacit check {name}/run.toml     # data, model and budget, before anything is spent
    tacit run {name}/run.toml       # trains, with ε enforced; results in out/run
    tacit keys                      # every key of the run file

Put the private rows into `{train}`. What a row is, and whose: `run.toml`. What the owner allows:
`policy.toml`. The ledger of what was spent lies in ~/.local/share/tacit and is never begun afresh.
"""
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys that TOML takes without quotes
_EDGES, _PUSHES, _BATCH, _RATE = 5, 100, 256, 4.0
_REGRESSION_RATE = 1.0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What `tacit new` was asked for.

    sample: the public table that columns, bounds and classes are guessed from; it becomes the test
    set. entry: of the user's own module, None for a small one that is written here. sites: how many
    have a file of their own; None: one file is dealt.
    """

    sample: Path | None
    target: str | None
    unit: str | None
    entry: str | None
    sites: int | None = None

    @property
    def edges(self) -> int:
        """How many edges there are."""
        return self.sites or _EDGES

    def train(self, suffix: str) -> str:
        """What the private file, or those of the sites, are called."""
        return f"train{suffix}" if self.sites is None else f"site{{edge}}{suffix}"


def make(folder: Path, wanted: Wanted) -> list[Path]:
    """Write the files into `folder`, which must not be there; returns them.

    Raises ConfigError, DataError; then nothing is left.
    """
    name = folder.name
    columns, target = _columns(wanted)  # before anything is written
    if folder.exists():
        raise ConfigError(f"{folder}: is there already; nothing is overwritten")
    suffix = ".csv" if wanted.sample is None else wanted.sample.suffix
    files = {
        "run.toml": _run_file(name, wanted, columns, target, suffix),
        "policy.toml": POLICY,
        "README.md": README.format(name=name, train=wanted.train(suffix)),
    }
    if wanted.entry is None:
        files["nets.py"] = NETS
    try:
        folder.mkdir(parents=True)
        for file, content in files.items():
            (folder / file).write_text(content, encoding="utf-8")
        if wanted.sample is not None:
            shutil.copyfile(wanted.sample, folder / f"public{suffix}")
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror or error}") from error
    return sorted(folder.iterdir())


def _columns(wanted: Wanted) -> tuple[list[Guess], Guess]:
    if wanted.sample is None:
        example = [Guess("age", 0.0, 110.0), Guess("sex", values=("f", "m"))]
        return example, Guess(wanted.target or "outcome", values=("no", "yes"))
    from tacit_services.project.guess import guessed

    return guessed(wanted.sample, wanted.target, wanted.unit)


def _run_file(name: str, wanted: Wanted, columns: list[Guess], target: Guess, suffix: str) -> str:
    width = sum(1 if one.is_number else len(one.values) + 1 for one in columns if not one.left_out)
    outputs = 1 if target.is_number else len(target.values)
    entry = wanted.entry or "nets:Net"
    arguments = (
        f"arguments = {{ inputs = {width}, outputs = {outputs} }}"
        if wanted.entry is None
        else f"# arguments = {{ … }}  # what {entry} is called with; x has {width} numbers"
    )
    return RUN_FILE.format(
        title="A private model of one's own table.",
        name=name,
        updates=wanted.edges * _PUSHES,
        data="\n".join(_data(wanted, target, suffix)),
        guessed="" if wanted.sample is None else f", and guessed from {wanted.sample.name}",
        columns="\n".join(map(_line, [*columns, target])),
        model=MODEL.format(entry=entry, arguments=arguments),
        rate=_REGRESSION_RATE if target.is_number else _RATE,
        pushes=_PUSHES,
        batch=_BATCH,
        edges=wanted.edges,
        every=_PUSHES,
    )


def _data(wanted: Wanted, target: Guess, suffix: str) -> list[str]:
    what = (
        f'private rows, dealt to the edges; or "site{{edge}}{suffix}", a file an edge'
        if wanted.sites is None
        else f"private rows: site0{suffix} of edge 0, site1{suffix} of edge 1, …"
    )
    lines = [
        f'train = "{wanted.train(suffix)}"  # {what}',
        f'test = "public{suffix}"  # public, and of other people'
        if wanted.sample is not None
        else f'# test = "public{suffix}"  # public, and of other people',
        f"target = {json.dumps(target.name)}",
    ]
    if wanted.unit is not None:
        lines.append(f"unit = {json.dumps(wanted.unit)}  # whose privacy it is: all rows of one")
    lines.append(_rows(wanted, suffix))
    return lines


def _rows(wanted: Wanted, suffix: str) -> str:
    units = "rows" if wanted.unit is None else "units"
    if wanted.sites is not None:
        return f"rows = 5000  # public: {units} that a site is taken to have; write your number"
    counted = "rows" if wanted.unit is None else "rows and unit_rows"
    return (
        f"# rows = 5000  # public: {units} of an edge; left out, {counted} are counted in "
        f"train{suffix}, and public"
    )


def _line(one: Guess) -> str:
    key = one.name if _BARE.fullmatch(one.name) else json.dumps(one.name, ensure_ascii=False)
    if one.left_out:
        return f"# {key}: is not read; it {one.left_out}"
    if one.is_number:
        return f"{key} = {{ low = {one.low:.12g}, high = {one.high:.12g} }}"
    return f"{key} = {{ values = {json.dumps(list(one.values), ensure_ascii=False)} }}"
