"""A new run on a table: its columns, guessed from a public sample, or an example of them."""

from __future__ import annotations

import re
import tomllib
import unicodedata
from collections.abc import Iterator
from dataclasses import replace
from math import sqrt
from pathlib import Path

from pydantic import ValidationError

from tacit.algorithms.ebm.ebm_settings import RELEASES
from tacit.config.complaints import one_line
from tacit.config.learnt import LearntSection
from tacit.config.own_table import TableData
from tacit.datasets.own.table import TableReader
from tacit.datasets.own.table_form import TableForm
from tacit.errors import ConfigError
from tacit.shown import printable
from tacit_services.project.answered import guesses_of
from tacit_services.project.draft import (
    AUDP,
    EBM,
    FEDASYNC,
    LOGISTIC,
    NETWORK,
    PLAIN,
    Draft,
    DraftRequest,
    StatedTarget,
    own_model,
    quoted,
    whose_rows,
)
from tacit_services.project.guess import Guess, Guesses, guessed
from tacit_services.project.number_guess import NumberGuess, rounded
from tacit_services.project.row_sizes import RowSizes, row_sizes
from tacit_services.project.templates import NETS

_WHY_ADDITIVE = (
    "the model is a function of each column (ebm): it needs no tuning, follows what is not linear, "
    "and can be read; for another: --model logistic, or --model network"
)
_BARE = re.compile(r"[A-Za-z0-9_-]+")  # keys that TOML takes without quotes
_LISTED = 6  # names or values in a line
_RATE = 1.0  # of a network's steps
_CLIP = 1.0
_GOAL_RATE = 4.0  # of labels, counts and events
_SHORT_CLIP = 0.5  # of what is no class
_PUSHES = 200  # of an edge with a linear model, whose updates take no time
_RADIUS = 2.0  # that a linear model's weights are taken to lie within, columns being at their scale


def draft(request: DraftRequest) -> Draft:
    """Draft a run on a table like the sample. Raises ConfigError, DataError."""
    guesses = _fitting(request, _guesses(request))
    columns, target = guesses.features, guesses.target
    targets = guesses.targets
    width = sum(guess.width for guess in columns)
    if not width:
        raise ConfigError(
            f"--table {request.sample}: no column is left to learn from beside {target.name!r}: "
            + "; ".join(map(_why_not, columns[:5]))
        )
    data = _data_lines(request, guesses)
    remarks = (
        *guesses.remarks,
        *_unread(columns),
        *_asked(columns),
        *_of_values(columns, targets),
        *_meanings(targets, request.goal),
    )
    learns = _learns(request, guesses)
    plain = request.goal == PLAIN
    if request.entry is None and plain:
        return _additive(data, remarks, learns)
    if request.entry == LOGISTIC:
        if not plain or target.is_number:
            raise ConfigError(
                "--model logistic: is for a target of classes here; leave it out, or say "
                "--model network"
            )
        return _linear(data, _sizes(request, data, len(columns)), remarks, learns)
    if request.entry in (None, NETWORK):
        model = _small(width, _outputs(guesses))
        nets = NETS
    else:
        model = own_model(request.entry, f"x has {width} numbers")
        nets = None
    return Draft(
        title="table",
        data=data,
        model=model,
        algorithm=[*FEDASYNC, f"learning_rate = {_RATE if plain else _GOAL_RATE}"],
        nets=nets,
        row="row",
        clip=_CLIP if plain and not target.is_number else _SHORT_CLIP,
        remarks=remarks,
        learns=learns,
    )


def _additive(data: list[str], remarks: tuple[str, ...], learns: str) -> Draft:
    """Draft a function of each column, which no key needs to be tuned for."""
    return Draft(
        title="table",
        data=data,
        model=[
            'name = "additive"  # a function of each column, which a person can read and correct',
            "# bins = 32  # that a column of numbers is cut into",
        ],
        algorithm=EBM,
        nets=None,
        row="row",
        pushes=RELEASES,
        untuned=True,
        remarks=(*remarks, _WHY_ADDITIVE),
        learns=learns,
    )


def _learns(request: DraftRequest, guesses: Guesses) -> str:
    """Return what the run learns, in words, and why: the last column where nobody named one."""
    goal = request.goal
    target = guesses.target
    if goal.time:
        return f"the time {goal.time} to {goal.event}"
    if goal.labels:
        return f"{', '.join(goal.labels)}: whether each holds"
    if goal.counts:
        what = "a count"
    elif target.is_number:
        what = "a number"
    else:
        listed = ", ".join(printable(value) for value in target.values[:_LISTED])
        what = f"one of {listed}" + ", …" * (len(target.values) > _LISTED)
    named = f"{printable(target.name)}, {what}"
    if request.target is None and request.sample is not None:
        return f"{named} (the last column; for another: --target)"
    return named


def _unread(columns: list[Guess]) -> Iterator[str]:
    """Yield which columns are not read, but those that somebody is asked about."""
    names = [printable(guess.name) for guess in columns if guess.left_out and not guess.person]
    named = [name for name in names if name]
    if named:
        more = f" and {len(named) - _LISTED} more" * (len(named) > _LISTED)
        yield f"not read: {', '.join(named[:_LISTED])}{more}; why, and how to, is in run.toml"


def _outputs(guesses: Guesses) -> int:
    """Return how many numbers a model gives for a row."""
    if guesses.cuts:
        return len(guesses.cuts)
    if len(guesses.targets) > 1:
        return len(guesses.targets)
    if guesses.target.is_number:
        return 1
    return len(guesses.target.values)


def _data_lines(request: DraftRequest, guesses: Guesses) -> list[str]:
    if request.answers is not None:
        read = f", as {request.answers.name} has them"
    elif request.sample is None:
        read = ""
    else:
        read = f", and guessed from {request.sample.name}"
    return [
        *_data(request, guesses),
        *_form(guesses.form),
        *([] if guesses.learnt is None else _learnt(guesses.learnt)),
        "",
        f"# All that is read; bounds and values are public{read}.",
        "[data.columns]",
        *map(_line, guesses.features),
        *(_target_line(guess, request.goal) for guess in guesses.targets),
    ]


def _learnt(learnt: LearntSection) -> Iterator[str]:
    """Yield the lines of [data] that state which answers its columns come of."""
    keys = ", ".join(
        f"{key} = {quoted(value) if isinstance(value, str) else value}"
        for key, value in learnt.model_dump().items()
    )
    yield "# What columns and bounds come of, for all to read: leave it as it is."
    yield f"learnt = {{ {keys} }}"


def _linear(data: list[str], sizes: RowSizes, remarks: tuple[str, ...], learns: str) -> Draft:
    """Draft a linear model, whose steps follow from the rows' sizes, the noise and the updates."""
    clip = rounded(sizes.length)
    return Draft(
        title="table",
        data=data,
        model=['name = "logistic"  # or "mlp" with hidden = [16], where there are many rows'],
        algorithm=[
            *AUDP,
            "# learning_rate is left out: it follows from the noise, the updates, and these three.",
            f"smoothness = {rounded(sizes.mean_square / 4)}  # of the loss, on rows like these",
            f"radius = {_RADIUS}  # how far the weights are taken to lie from 0",
            f"deviation = {clip}  # of a row's gradient, at the most",
        ],
        nets=None,
        row="row",
        clip=clip,
        batch="batch = 0.25  # of an edge's rows are in a push, on average; from 1 on: rows",
        pushes=_PUSHES,
        remarks=remarks,
        learns=learns,
    )


def _sizes(request: DraftRequest, data: list[str], columns: int) -> RowSizes:
    """Return the sizes of the sample's rows, read as the run reads them.

    Without a sample, each column is taken to have the length 1, and so has the bias.
    """
    if request.sample is None:
        return RowSizes(sqrt(columns + 1), (columns + 1) / 2)
    return row_sizes(_reader(data).inputs(request.sample))


def _reader(data: list[str]) -> TableReader:
    """Return the reader of tables with these lines of [data]. Raises ConfigError."""
    stated = tomllib.loads("\n".join(["[data]", *data]))["data"]
    try:
        section = TableData.model_validate({"train": "rows"} | stated)  # a federation's has none
    except ValidationError as error:
        raise ConfigError(f"--table: {one_line(error, TableData)}") from error
    return section.table_reader(Path())


def _fitting(request: DraftRequest, guesses: Guesses) -> Guesses:
    """Return the guesses without columns that the sample itself would fail.

    `tacit check` refuses a column of which nearly all rows say nothing, and a start one with a
    cell that cannot be read. Raises ConfigError for a target that nearly no row has.
    """
    if request.sample is None or not sum(guess.width for guess in guesses.features):
        return guesses
    reader = _reader(_data_lines(request, guesses))
    silent = reader.silent(request.sample)
    for guess in guesses.targets:
        if guess.name in silent:
            raise ConfigError(f"--target {guess.name}: nearly no row of the sample has a value")
    unfit = silent | reader.misfits(request.sample)
    why = "has a cell that is not read, or no value of its own in nearly all rows"
    features = [
        replace(guess, left_out=why, instead="") if guess.name in unfit else guess
        for guess in guesses.features
    ]
    return replace(guesses, features=features)


def _of_values(columns: list[Guess], targets: tuple[Guess, ...]) -> list[str]:
    """Return what cells are taken for: none, where nobody said so, and two where they are alike."""
    read = [guess for guess in (*columns, *targets) if not guess.left_out]
    coded = [
        f"{printable(guess.name)} {', '.join(map(printable, guess.codes))}"
        for guess in read
        if guess.codes
    ]
    remarks = []
    if coded:
        remarks.append(f"these are taken for no value (missing_codes): {'; '.join(coded)}")
    absent = [printable(guess.name) for guess in targets if guess.missing]
    if absent:
        remarks.append(
            f"rows without {', '.join(absent)} are left out, and so is every row that does not fit "
            '(data.bad_rows = "leave out")'
        )
    for guess in read:
        alike: dict[str, list[str]] = {}
        for value in guess.values:
            composed = unicodedata.normalize("NFKC", value).casefold()
            alike.setdefault(" ".join(composed.split()), []).append(value)
        for values in alike.values():
            if len(values) > 1:
                remarks.append(
                    f"{printable(guess.name)}: {', '.join(map(printable, values))} are "
                    f"{len(values)} values; where they are one, write them alike in all files"
                )
    return remarks


def _asked(columns: list[Guess]) -> list[str]:
    """Return what the user is asked about columns."""
    asked = [guess.asks for guess in columns if guess.asks]
    asked += [
        f"{guess.name} is a text, and is not read: it takes a public tokenizer's file beside "
        f"the run file, a network with an embedding, and {guess.name} = {guess.instead}"
        for guess in columns
        if guess.text
    ]
    return asked + [
        f"is {guess.name} a person, or another whose rows belong together? It is not read; say "
        f"--unit {guess.name}, or privacy is for each row by itself"
        for guess in columns
        if guess.person
    ]


def _why_not(guess: Guess) -> str:
    if guess.text:
        return f"{guess.name!r} {guess.left_out}; to read it: {guess.instead} (docs/own-data.md)"
    return f"{guess.name!r} {guess.left_out}"


def _meanings(targets: tuple[Guess, ...], goal: StatedTarget) -> list[str]:
    """Return what the values of several labels are taken for."""
    if not goal.columns:
        return []
    holds = ", ".join(f"{guess.name} at {guess.values[1]}" for guess in targets if guess.values)
    if goal.event:
        return [f"the event came where {holds}, at that time; if not, turn its values round"]
    return [f"a label holds at the second of its values: {holds}; if not, turn its values round"]


def _form(form: TableForm) -> list[str]:
    """Return the lines of [data] for a form that is not the usual one."""
    return [
        f"{key} = {'false' if value is False else quoted(str(value))}  # of the text, in all files"
        for key, value in form.stated().items()
    ]


def _small(width: int, outputs: int) -> list[str]:
    return [
        'name = "python"',
        'entry = "nets:Net"  # a class or function beside this file',
        f"arguments = {{ inputs = {width}, outputs = {outputs} }}",
    ]


def _guesses(request: DraftRequest) -> Guesses:
    if request.answers is not None:
        return guesses_of(request.answers, request.target, request.unit)
    if request.sample is None:
        example = [
            Guess("age", number=NumberGuess(0.0, 110.0, 50.0, 20.0)),
            Guess("sex", values=("f", "m")),
        ]
        names = request.goal.columns or (request.target or "outcome",)
        targets = tuple(Guess(name, values=("no", "yes")) for name in names)
        if request.goal.counts:
            targets = (Guess(names[0], number=NumberGuess(0.0, 20.0, 2.0, 2.0)),)
        if request.goal.time:
            time = Guess(names[0], number=NumberGuess(0.0, 365.0, 0.0, 1.0))
            return Guesses(example, (time, targets[1]), TableForm(), (), (30.0, 90.0, 180.0, 365.0))
        return Guesses(example, targets, TableForm(), ())
    return guessed(request.sample, request.target, request.unit, request.form, request.goal)


def _target_key(guesses: Guesses, goal: StatedTarget) -> str:
    """Return the target, as a run file has it."""
    if goal.time:
        cuts = ", ".join(f"{cut:.12g}" for cut in guesses.cuts)
        return f"{{ time = {quoted(goal.time)}, event = {quoted(goal.event)}, cuts = [{cuts}] }}"
    if goal.labels:
        return quoted(list(goal.labels))
    return quoted(guesses.target.name)


def _data(request: DraftRequest, guesses: Guesses) -> list[str]:
    suffix = request.suffix
    if request.sites is None:
        what = f'private rows, dealt to the edges; or "site{{edge}}{suffix}", a file an edge'
    else:
        what = f"private rows: site0{suffix} of edge 0, site1{suffix} of edge 1, …"
    lines = [
        'kind = "table"',
        *whose_rows(request, what, "rows"),
        f'test = "public{suffix}"  # public, and of other people'
        if request.sample is not None
        else f'# test = "public{suffix}"  # public, and of other people',
        f"target = {_target_key(guesses, request.goal)}",
    ]
    absent = [guess.name for guess in guesses.targets if guess.missing]
    if absent:
        lines.append(f'bad_rows = "leave out"  # the sample has rows without {", ".join(absent)}')
    if request.unit is not None:
        lines.append(f"unit = {quoted(request.unit)}  # whose privacy it is: all rows of one")
    lines.append(_rows(request, suffix, guesses))
    if request.unit is not None and request.apart:
        most = guesses.unit_rows or 1
        lines.append(
            f"unit_rows = {most}  # public: rows of a unit that count in one draw, at the most"
            + "; as many as one has in the sample" * (guesses.unit_rows > 0)
        )
    return lines


def _rows(request: DraftRequest, suffix: str, guesses: Guesses) -> str:
    if request.unit is None:
        units = "rows"
    else:
        units = "units"
    if guesses.rows:
        if request.unit is None:
            counted = "a noisy count"
        else:  # the count is of rows, and a unit may have several
            counted = "a noisy count of rows; write your number"
        rows = max(1, guesses.rows // (guesses.sites if request.apart else request.edges))
        return f"rows = {rows}  # public: {units} of an edge, by {counted}"
    if request.apart:
        return f"rows = 5000  # public: {units} that a site is taken to have; write your number"
    if request.unit is None:
        counted = "rows"
    else:
        counted = "rows and unit_rows"
    return (
        f"# rows = 5000  # public: {units} of an edge; left out, {counted} are counted in "
        f"train{suffix}, and public"
    )


def _key(name: str) -> str:
    if _BARE.fullmatch(name):
        return name
    return quoted(name)


def _left_out(key: str, guess: Guess) -> str:
    instead = f"; to read it: {guess.instead}" if guess.instead else ""
    return f"# {key}: is not read; it {guess.left_out}{instead}"


def _target_line(target: Guess, goal: StatedTarget) -> str:
    """Return the line of a target's column.

    It has no number in the place of a missing one, and a number is scaled by its bounds.
    """
    codes = f", missing_codes = {_codes(target.codes)}" if target.codes else ""
    if target.number is None:
        return f"{_key(target.name)} = {{ values = {quoted(list(target.values))}{codes} }}"
    bounds = f"low = {target.number.low:.12g}, high = {target.number.high:.12g}"
    if goal.counts:
        bounds += ", counts = true"
    return f"{_key(target.name)} = {{ {bounds}{codes} }}"


def _line(guess: Guess) -> str:
    key = _key(guess.name)
    if guess.left_out:
        return _left_out(key, guess)
    entries = _entries(guess)
    if guess.codes:
        entries.append(f"missing_codes = {_codes(guess.codes)}")
    line = f"{key} = {{ {', '.join(entries)} }}"
    if guess.rare:
        return f"{line}  # {guess.rare} rarer values are other"
    return line


def _entries(guess: Guess) -> list[str]:
    if guess.date is not None:
        pattern, since, until = guess.date
        entries = [f"date = {quoted(pattern)}", f'since = "{since}"', f'until = "{until}"']
        entries.append('parts = ["days"]')
    elif guess.number is not None:
        return _numbers(guess, guess.number)
    else:
        entries = [f"values = {quoted(list(guess.values))}"]
    if guess.missing or guess.rare:
        entries.append('missing = "other"')
    return entries


def _numbers(guess: Guess, number: NumberGuess) -> list[str]:
    constants = {"low": number.low, "high": number.high}
    constants |= {"center": number.center, "scale": number.scale}
    entries = [f"{key} = {value:.12g}" for key, value in constants.items()]
    if number.log:
        entries.append("log = true")
    if guess.missing:
        entries.append(f"missing = {number.center:.12g}")
    return entries


def _codes(codes: tuple[str, ...]) -> str:
    return f"[{', '.join(map(_code, codes))}]"


def _code(code: str) -> str:
    return code if re.fullmatch(r"-?\d+", code) else quoted(code)
