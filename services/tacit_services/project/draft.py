"""The request to `tacit new`, and what it knows of the data when it writes the files."""

from __future__ import annotations

import json
import unicodedata
from dataclasses import dataclass
from pathlib import Path

from tacit.errors import ConfigError

_EDGES = 5
_MEMBERS = 2  # whose consent a run waits for


@dataclass(frozen=True, slots=True)
class StatedForm:
    """What the user says of the sample's form; None is found."""

    separator: str | None = None
    decimal: str | None = None
    encoding: str | None = None
    header: bool | None = None
    sheet: str | None = None


UNSTATED = StatedForm()


@dataclass(frozen=True, slots=True)
class StatedTarget:
    """What the user says of a target that is no class and no plain number.

    labels: the columns of several labels, in the place of one column. counts: whether the column
    counts something. time, event: the columns of the time to an event; "" for none.
    """

    labels: tuple[str, ...] = ()
    counts: bool = False
    time: str = ""
    event: str = ""

    @property
    def columns(self) -> tuple[str, ...]:
        """The columns of the target, where it is not one column."""
        if self.time:
            return (self.time, self.event)
        return self.labels


PLAIN = StatedTarget()


@dataclass(frozen=True, slots=True)
class DraftRequest:
    """The request to `tacit new`.

    target: the column that is learnt. goal: the kind of prediction for it. sample: the public table
    from which columns, bounds and classes are guessed. images: the folder of public pictures from
    which classes and size are guessed. Either becomes the test set. entry: of the user's own
    module, or LOGISTIC or NETWORK, or None for what suits the rows best. sites: the number of sites
    with a file or a folder of their own, None if one is dealt. name: of the private data's ledger.
    form: of the sample's text, as far as the user states it. federation: whether members of a
    federation have the rows, whose files and names are theirs. answers: of `tacit ask`, in the
    place of a sample.
    """

    sample: Path | None
    target: str | None
    unit: str | None
    entry: str | None
    sites: int | None = None
    images: Path | None = None
    name: str = ""
    form: StatedForm = UNSTATED
    goal: StatedTarget = PLAIN
    federation: bool = False
    answers: Path | None = None

    @property
    def apart(self) -> bool:
        """Whether each edge has rows of its own, so that nobody here can count them."""
        return self.federation or self.sites is not None

    @property
    def edges(self) -> int:
        """The number of edges."""
        return self.sites or (_MEMBERS if self.federation else _EDGES)

    @property
    def suffix(self) -> str:
        """The suffix of the data's files; "" for a folder of pictures."""
        if self.images is not None:
            return ""
        if self.sample is None:
            return ".csv"
        return self.sample.suffix

    @property
    def train(self) -> str:
        """The name of the private file or folder, or of the sites' ones."""
        if self.sites is None:
            return f"train{self.suffix}"
        return f"site{{edge}}{self.suffix}"

    @property
    def public(self) -> Path | None:
        """The public data, which becomes the test set."""
        return self.sample or self.images


FEDASYNC = [
    'name = "fedasync"  # each edge takes a step and sends its model; nobody waits',
    "steps_min = 1",
]
LOGISTIC = "logistic"  # in the place of an own module: a linear model
NETWORK = "network"  # a small one that is written here
EBM = [
    'name = "ebm"  # each edge sends noisy histograms when it is ready; nobody waits, and no key',
    "# needs to be tuned",
]
AUDP = [
    'name = "audp"  # each edge sends noisy gradients when it is ready; nobody waits',
    'schedule = "linear"  # steps fall to 0 at the end of the run',
]


@dataclass(frozen=True, slots=True)
class Draft:
    """The content of a new run's files.

    title: what the run learns from. data, model, algorithm: the lines of these sections. nets: the
    module that lies beside the run file, if there is one. row: what a row is called. batch: its
    line, where it is not the usual one. pushes: of an edge. untuned: whether updates, pushes, batch
    and clip follow from the algorithm, so that none is written. remarks: what the user should know,
    or decide. learns: what the target is, and why it is.
    """

    title: str
    data: list[str]
    model: list[str]
    algorithm: list[str]
    nets: str | None
    row: str
    clip: float = 0.5
    batch: str = ""
    pushes: int = 100
    untuned: bool = False
    remarks: tuple[str, ...] = ()
    learns: str = ""


def own_model(entry: str, inputs: str) -> list[str]:
    """Return the lines of [model] for the user's own module; inputs: what it gets."""
    return [
        'name = "python"',
        f'entry = "{entry}"  # a class or function beside this file',
        f"# arguments = {{ … }}  # what {entry} is called with; {inputs}",
    ]


def whose_rows(request: DraftRequest, what: str, rows: str) -> list[str]:
    """Return the lines of [data] that say whose the private rows are.

    what: a comment on the file. rows: what they are called.
    """
    if request.federation:
        return [f"# no train and no name: each member's --data has its {rows}"]
    return [
        f"name = {quoted(request.name)}  # of the ledger that counts for these {rows}: keep it",
        f'train = "{request.train}"  # {what}',
    ]


def quoted(value: str | list[str]) -> str:
    """Quote a text, or a list of texts, as TOML and Python have it."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")


def check_name(option: str, name: str) -> None:
    """Raise ConfigError for a name that would end the line or the quotes that it is written in."""
    if any(char in '"\\' or unicodedata.category(char) == "Cc" for char in name):
        raise ConfigError(
            f"{option} {name!r}: has a quote, a backslash or a control character; rename it"
        )
    check_unicode(option, name)


def check_unicode(option: str, name: str) -> None:
    """Raise ConfigError for a name whose bytes are not UTF-8, which no file can hold."""
    if any(unicodedata.category(char) == "Cs" for char in name):
        raise ConfigError(f"{option} {name!r}: is not UTF-8; rename it")
