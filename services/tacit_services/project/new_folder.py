"""`tacit new`: a folder with a commented run file, the owner's policy and a README."""

from __future__ import annotations

import shutil
from dataclasses import dataclass, replace
from itertools import chain, count
from pathlib import Path

from tacit.datasets.own.file_reading import digest
from tacit.errors import ConfigError, PrivacyError
from tacit_services.identity import own_ledgers
from tacit_services.project import pictures
from tacit_services.project.draft import Draft, DraftRequest, check_name, check_unicode
from tacit_services.project.templates import (
    GITIGNORE,
    POLICY,
    README,
    README_OF_FEDERATION,
    RUN_FILE,
)

_EVALUATIONS = 100
_DAY = 86_400  # seconds


@dataclass(frozen=True, slots=True)
class WrittenRun:
    """A folder that was written: its files, what the run learns, and what to know, or decide."""

    files: list[Path]
    remarks: tuple[str, ...]
    learns: str = ""


def make(folder: Path, request: DraftRequest, home: Path) -> WrittenRun:
    """Write the files into `folder`, which must not be there, and appears whole.

    home: of the ledgers. Raises ConfigError, DataError, PrivacyError where a ledger knows what is
    to be public; then nothing is left.
    """
    _check_names(folder, request)
    draft = _draft(replace(request, name=_free_name(folder.name, home)))  # nothing is written yet
    _refuse_private(request, home)
    if folder.exists():
        raise ConfigError(
            f"{folder}: is there already; nothing is overwritten: remove it, or choose another NAME"
        )
    files = {
        "run.toml": _run_file(folder.name, request, draft),
        ".gitignore": GITIGNORE,
        "README.md": (README_OF_FEDERATION if request.federation else README).format(
            name=folder.name, train=request.train, row=draft.row
        ),
    }
    if not request.federation:
        files["policy.toml"] = POLICY
    if draft.nets is not None:
        files["nets.py"] = draft.nets
    unfinished = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(unfinished, ignore_errors=True)  # of a process that was killed
    try:
        unfinished.mkdir(parents=True)
        for file, content in files.items():
            (unfinished / file).write_text(content, encoding="utf-8")
        _copy_public(request, unfinished / f"public{request.suffix}")
        unfinished.rename(folder)
    except OSError as error:
        raise ConfigError(f"{folder}: {error.strerror or error}") from error
    finally:  # Ctrl-C too
        shutil.rmtree(unfinished, ignore_errors=True)
    return WrittenRun(sorted(folder.iterdir()), draft.remarks, draft.learns)


def _free_name(name: str, home: Path) -> str:
    """Return `name`, or where a ledger is called so already: with the first number that is free."""
    others = (f"{name}-{number}" for number in count(2))
    return next(
        candidate for candidate in chain([name], others) if not own_ledgers.called(candidate, home)
    )


def _draft(request: DraftRequest) -> Draft:
    if request.images is not None:
        return pictures.draft(request, request.images)
    from tacit_services.project import new_table  # pyarrow: only tables need it

    return new_table.draft(request)


def _check_names(folder: Path, request: DraftRequest) -> None:
    """Raise ConfigError for what cannot be written into a run file as it is."""
    if request.public is None:
        public = ""
    else:
        public = request.public.name
    if request.images is None:
        option = "--table"
    else:
        option = "--images"
    texts = {"NAME": folder.name, option: public, "--model": request.entry or ""}
    for name, text in texts.items():
        check_name(name, text)
    for name in (request.target or "", *request.goal.columns):
        check_unicode("--target", name)
    check_unicode("--unit", request.unit or "")


def _refuse_private(request: DraftRequest, home: Path) -> None:
    if request.public is None:
        return
    content = digest if request.images is None else pictures.content
    if (owner := own_ledgers.known(request.public, content(request.public), home)) is not None:
        raise PrivacyError(
            f"{request.public}: a ledger knows it (as {owner}), and all that is read here becomes "
            "public. Use public or made-up rows"
        )


def _copy_public(request: DraftRequest, place: Path) -> None:
    if request.sample is not None:
        shutil.copyfile(request.sample, place)
    elif request.images is not None:
        for file in pictures.files(request.images):  # no hidden one, and none that lies elsewhere
            copy = place / file.relative_to(request.images)
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, copy)


def _stop(request: DraftRequest) -> str:
    """Return the line of run.stop, which needs something that the model is judged on."""
    if request.public is None:
        return '# stop = "no better"  # needs data.test, or [evaluation] at = "edges"'
    return (
        'stop = "no better"  # ends where nothing is gained; edges keep the rest of their budgets'
    )


def _judging(request: DraftRequest) -> str:
    """Return the lines of [evaluation] that a run without a public test set may want."""
    if request.public is not None:
        return ""
    return (
        '# at = "edges"  # no test set is public: judge on rows that each edge holds out,\n'
        "# epsilon = 0.3  # at this price, beside privacy.epsilon: docs/judging.md\n"
    )


def _run_file(name: str, request: DraftRequest, draft: Draft) -> str:
    return RUN_FILE.format(
        title=f"A private model of one's own {draft.title}.",
        name=name,
        steps_of_run=_steps_of_run(request, draft),
        data="\n".join(draft.data),
        model="\n".join(draft.model),
        algorithm="\n".join(draft.algorithm),
        releases=_releases(draft),
        edges=request.edges,
        waiting=_waiting(request),
        steps=_steps(name, request),
        budget=_budget(request),
        every=max(request.edges if draft.untuned else 1, _updates(request, draft) // _EVALUATIONS),
        judging=_judging(request),
    )


def _updates(request: DraftRequest, draft: Draft) -> int:
    """Return how many updates the edges' budgets pay for."""
    return request.edges * draft.pushes


def _steps_of_run(request: DraftRequest, draft: Draft) -> str:
    """Return the lines of [run] on its length, its end, and the mean of its models."""
    if draft.untuned:
        return f"# updates are left out: {draft.pushes} of each edge, as many as a model needs"
    updates = _updates(request, draft)
    return (
        f"updates = {updates}  # of the model, by all edges together: as many as their budgets pay "
        f"for\n{_stop(request)}\n"
        "average = 0.5  # the mean of the last half's models lies beside the last one"
    )


def _releases(draft: Draft) -> str:
    """Return the lines of [privacy] on what the budget is divided among, and on each release."""
    if draft.untuned:
        return "# pushes, batch and clip are left out: they follow from the algorithm"
    return (
        f"pushes = {draft.pushes}  # that the budget is divided among\n"
        f"{draft.batch or _usual_batch(draft.row)}\n"
        f"clip = {draft.clip}  # no {draft.row} moves an update by more"
    )


def _usual_batch(row: str) -> str:
    return f"# batch = 256  # {row}s of a push, on average; left out: 256, or of fewer a quarter"


def _steps(name: str, request: DraftRequest) -> str:
    if request.federation:
        return f"Offer it to the members:  tacit submit {name}/run.toml --federation FOLDER"
    return f"Check it:  tacit check {name}/run.toml      Train:  tacit run {name}/run.toml"


def _budget(request: DraftRequest) -> str:
    if request.federation:
        return "what a member's data may spend in this run; its owner bounds the life of the data"
    return "what an edge's data may spend in its life, whatever run uses it"


def _waiting(request: DraftRequest) -> str:
    """Return the lines on how long sites are waited for that start by themselves."""
    if not request.apart:
        return ""
    return (
        f"min = {request.edges}  # the run begins when so many sites are there\n"
        f"wait = {_DAY}.0  # seconds that it waits for them\n"
        f"grace = {_DAY}.0  # and, near the end, for a site that is away and has budget\n"
    )
