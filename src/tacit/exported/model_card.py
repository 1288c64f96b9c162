"""The README of an exported model: what it is, what it may be used for, what it told of anybody.

After Mitchell et al., Model Cards for Model Reporting (doi:10.1145/3287560.3287596).
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from tacit import rounding
from tacit.config import RunFile
from tacit.config.own_table import TableData
from tacit.datasets.target import Target
from tacit.exported import construction
from tacit.exported.judged_rows import JudgedWords
from tacit.exported.markdown import marked
from tacit.exported.onnx_file import ONNX
from tacit.exported.stored import StoredCalibration, StoredConstant
from tacit.exported.trust import entries
from tacit.graphs.graph_facts import GraphFacts, layer_cells, shape_words
from tacit.models import Model
from tacit.shown import as_json

PICTURE = "network.svg"
OF_PRIVACY = ("guarantee", "unit", "adjacency", "noise_at", "trusted", "delta", "epsilon")

_CARD = """\
# {name}

A model that {edges} edges trained together with tacit {version}; no row left its edge.

## Use it

    tacit predict {folder} {option}

or in Python, in this folder:

    {network}

Rows become numbers as `model.json` says under `data`. The command needs
`pip install '{command_needs}'`, the lines need `pip install {lines_need}`.
{served}
## What it is

| | |
|---|---|
| learns | {learns} |
| from | {rows} |
{learnt}| network | {model}, {parameters:,} parameters |
| trained by | {algorithm}, {applied} updates |
| on the public test set | {measured} |
{judged}{files}
These are what `sha256sum` says of the files here. In the run's results the weights have the
SHA-256 `{digest}`.

{network_layers}Nothing is said here of groups of people that the test set does not show apart, \
nor of data from elsewhere.

{drives}## What it tells of the people it learnt from

{privacy}

## Settings

    {definition}
{agreed}"""
_LAYERS = """\
![The network, layer by layer]({picture})

For one example it takes {example}, and it gives {output} numbers. It has {trained:,} numbers that
were trained, and {fixed:,} fixed ones. A row costs {multiply_adds:,} multiply-adds.

{table}

"""
_ONNX = """\

For other servers, as onnxruntime (`pip install onnxruntime`):
`{file}` takes `rows`, any number of examples of {shape} numbers ({dtype}), as `model.json` says
under `data`: scaled as the edges scale them. It gives `scores`, the network's own numbers, and
`answers`: {answers}.
"""
_AGREED = """
A hash in `code` is what the edges agreed on: over the names and contents of all files of an entry
together. It is no file's SHA-256.
"""
_PRIVATE = """\
| | |
|---|---|
| guarantee | {guarantee} |
| whose privacy | {whose} |
| ε | {spent}, at the edge that spent most |
| δ | {delta:g} |
{judging}| who is trusted | {trusted} |{apart}

In words: somebody has this model, or saw every update, and wonders whether one {unit} was in the
training data. No answer gets more likely than e^ε = {odds} times what it was without that
{unit}, but for a chance of about δ. That holds whatever else he knows, and whatever is done with
the model later.

It is no promise that the model says nothing about people *like* them, nor that it is right. ε
counts what these data have told in runs of tacit up to now, as the edges' ledgers have it. What is
released by other means adds up, and so does what was told of people whom the owner of the data
takes for others (data.apart_from)."""
_APART = """
| taken for other people | those of {count}, on the owner's word (data.apart_from): ids or rows \
are alike, and what was spent there is not counted |"""
_NOT_PRIVATE = """\
**It was not trained privately** ({guarantee}). Whoever has the model may be able to tell who was in
the training data."""


def text(
    folder: Path,
    run: RunFile,
    model: Model,
    summary: dict[str, Any],
    files: Mapping[str, str],
    layers: GraphFacts | None,
    drives: str = "",
) -> str:
    """Return the card, as Markdown.

    folder: what it will lie in; summary: the run's summary.json. files: beside it, by their names,
    with their SHA-256. layers: of a graph. drives: sections on the functions of an additive model.
    """
    target = run.source.target
    return _CARD.format(
        name=run.run.name,
        folder=folder.name.removeprefix(".").removesuffix(".new"),
        edges=summary["edges"],
        version=summary["tacit_version"],
        option=options(run),
        network=construction.lines(run, model).replace("\n", "\n    "),
        command_needs=_command_needs(run),
        lines_need="tacit" if run.model.entry is None else "torch safetensors",
        learns=marked(target.words),
        rows=f"{run.data.kind} data, {list(run.source.shape[0])} numbers a row",
        learnt=_learnt(run, summary["privacy"]),
        model=run.model.entry or run.model.file or run.model.name,
        parameters=model.size,
        algorithm=run.algorithm.name,
        applied=summary["applied"],
        measured=_measured(summary["metrics"])
        + _beside_constant(summary.get("calibration"), summary.get("constant")),
        digest=summary["model_sha256"],
        files="".join(f"| {_shown(name)} | `{digest}` |\n" for name, digest in files.items()),
        agreed=_AGREED if "code" in run.stated() else "",
        privacy=privacy_words(summary["privacy"], summary.get("judged_words")),
        judged=_judged(summary.get("judged_words")),
        network_layers="" if layers is None else _layers(layers),
        drives=drives,
        served=_served(model, target) if ONNX in files else "",
        definition=as_json(run.stated(), indent=1).replace("\n", "\n    "),
    )


def _learnt(run: RunFile, privacy: dict[str, Any]) -> str:
    """Return the row about answers that columns and bounds come of; "": of no answers."""
    data = run.data
    if not isinstance(data, TableData) or data.learnt is None:
        return ""
    joint = ""
    if privacy.get("counts"):
        joint = "; the ε below counts these answers, too, where the same ledger paid for both"
    digest = data.learnt.answers
    return f"| learnt before | {marked(data.learnt.words)}{joint}. SHA-256 of them: `{digest}` |\n"


def _command_needs(run: RunFile) -> str:
    """Return what `tacit predict` is installed as, for such rows."""
    data = run.data
    if isinstance(data, TableData) and data.reader(run.folder).integers is not None:
        return "tacit[edge,text]"
    return "tacit[edge]"


def options(run: RunFile) -> str:
    """Return the options of `tacit predict`: new rows, and --trust-code where the run has code."""
    return _OPTIONS[run.data.kind] + (" --trust-code" if any(entries(run)) else "")


def _layers(facts: GraphFacts) -> str:
    heading, *rows = layer_cells(facts)
    lines = [heading, ("---",) * len(heading), *(tuple(map(marked, row)) for row in rows)]
    return _LAYERS.format(
        picture=PICTURE,
        example=facts.example,
        output=shape_words(facts.output),
        trained=facts.trained,
        fixed=facts.fixed,
        multiply_adds=facts.multiply_adds,
        table="\n".join(f"| {' | '.join(line)} |" for line in lines),
    )


def _served(model: Model, target: Target) -> str:
    x, _ = model.random_batch(1, torch.Generator().manual_seed(0))
    return _ONNX.format(
        file=ONNX,
        shape="×".join(map(str, x.shape[1:])),
        dtype=str(x.dtype).removeprefix("torch."),
        answers=_ANSWERS[target.kind],
    )


_ANSWERS = {
    "classes": "the probability of each class",
    "number": "the number, in the unit of the file",
    "text": "the probability of each word, at each place",
    "tokens": "the probability of each token, at each place",
    "labels": "the probability of each label",
    "counts": "the expected count",
    "event": "the probability of the event by each cut",
}


def _shown(name: str) -> str:
    return f"{marked(name)}, SHA-256"


_OPTIONS = {
    "table": "--table new.csv",
    "images": "--images FOLDER",
    "arrays": "--arrays new.npz",
    "python": "--rows FILE",
    "benchmark": "--images FOLDER",
}


def _measured(metrics: dict[str, float | None]) -> str:
    measured = [
        f"{marked(name)} {value:.4g}" for name, value in metrics.items() if value is not None
    ]
    return ", ".join(measured) or "nothing was measured"


def _beside_constant(calibration: StoredCalibration | None, constant: StoredConstant | None) -> str:
    """Return what the probabilities are worth beside always the same answer, on how many rows."""
    if calibration is None or constant is None:
        return ""
    rows = sum(each.rows for each in calibration.bins)
    model = {"log_loss": calibration.log_loss, "brier": calibration.brier}
    same = {"log_loss": constant.log_loss, "brier": constant.brier}
    return (
        f"; {_measured(model | {'calibration error': calibration.error})}; on {rows:,} public "
        f"rows. Always the same answer: {_measured({'accuracy': constant.accuracy} | same)}"
    )


def _judged(words: JudgedWords | None) -> str:
    """Return the rows about looks at rows that edges held out; "": there was none."""
    if words is None:
        return ""
    rows = f"| judged at the edges | {marked(words.figures)} |\n"
    if words.chosen is not None:
        rows += f"| chosen by | {marked(words.chosen)} |\n"
    return rows


def privacy_words(privacy: dict[str, Any], judged: JudgedWords | None = None) -> str:
    """Return the section on privacy, by `privacy` of a summary. judged: what judging has cost."""
    if privacy["epsilon"] is None or "simulated" in privacy:
        return _NOT_PRIVATE.format(guarantee=privacy["guarantee"])
    words = {key: privacy[key] for key in OF_PRIVACY}
    unit = privacy["unit"]
    words["whose"] = (
        f"one {unit} of the training data"
        if unit in ("row", "record")
        else f"all rows of one {unit} together"
    )
    words["apart"] = _apart(privacy.get("apart_from", 0))
    words["judging"] = "" if judged is None else f"| ε of judging | {judged.cost} |\n"
    spent = privacy["epsilon"]
    return _PRIVATE.format(**words, spent=rounding.epsilon(spent), odds=rounding.odds(spent))


def _apart(ledgers: int) -> str:
    """Return the row about people who are stated to be others.

    Neither names nor numbers of rows are in it, as these are their owner's.
    """
    if not ledgers:
        return ""
    return _APART.format(count="one other ledger" if ledgers == 1 else f"{ledgers} other ledgers")
