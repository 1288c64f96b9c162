"""An offer as a run definition: at its host, and at a member with rows.

    run = definition_at_member(offer, folder, Site(number=3, data=Path("patients.csv")))
    run = definition_at_host(offer, folder, test="public.csv")

`folder` has the offer's files, by their names. Both sides get the same fingerprint and the same
`agreed`.

Guarantee: every file of the offer has the SHA-256 that the offer states before anything else reads
it, and the run file names no other file. Nothing is executed: the model is a graph or one of
tacit's own. Code runs at a site only where its owner has put it and the offer states its SHA-256.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from tacit import config, regular_file
from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.algorithms.own.own_steps import OwnStepsTask
from tacit.config import RunFile
from tacit.config.data import is_own_data
from tacit.config.own_data import OwnData
from tacit.config.party_columns import ColumnsData
from tacit.config.site import Site
from tacit.datasets.own.file_reading import digest
from tacit.errors import ConfigError, DataError
from tacit.user_code import entry_digest
from tacit_services.offers.offer import MOST_BYTES, OFFER, Offer


class OtherFile(DataError):  # noqa: N818 (a verdict on a file)
    """A file of an offer is missing, is a link, or is not the one that the offer states."""


class CodeNeeded(ConfigError):  # noqa: N818 (a verdict on an offer)
    """The run needs code at the site, which its owner has not put there, or other code.

    entry: "module:name". sha256: of the code that the offer states.
    """

    def __init__(self, entry: str, sha256: str, why: str) -> None:
        super().__init__(f"{entry}: {why}; the offer states SHA-256 {sha256}")
        self.entry = entry
        self.sha256 = sha256


def read_offer(folder: Path) -> Offer:
    """Return the offer in `folder`/offer.json. Raises ConfigError, WireError."""
    try:
        return Offer.parse(regular_file.content(folder / OFFER, MOST_BYTES))
    except OSError as error:
        raise ConfigError(f"offer {folder}: {error.strerror or error}") from error


def definition_at_member(offer: Offer, folder: Path, site: Site) -> RunFile:
    """Return the run file of an offer with a member's own rows.

    Raises OtherFile for a file that is not the offer's, CodeNeeded for code that is not here,
    ConfigError for an offer that cannot be run, in one line.
    """
    check_files(offer, folder)
    run = _read(offer, folder, site)
    for entry, sha256 in offer.code.items():
        _check_code(entry, sha256, folder)
    places = run.edges.count + run.data.spare
    _check_whose(run, site)
    if site.number >= places:
        raise ConfigError(f"member {site.number}: this run has places 0 to {places - 1}")
    return run


def definition_at_host(offer: Offer, folder: Path, test: str | None = None) -> RunFile:
    """Return the run file of an offer without rows; test: the public test set in `folder`.

    An own algorithm is loaded from `folder`. Raises as `definition_at_member`.
    """
    check_files(offer, folder)
    return _read(offer, folder, None, test)


def _check_whose(run: RunFile, site: Site) -> None:
    """Raise ConfigError for own rows where a member has none, and published ones where it has."""
    if isinstance(run.data, OwnData):
        if site.published:
            raise ConfigError(
                f"data.kind={run.data.kind}: is for rows of a member's own, and this one has "
                "published data only (--published)"
            )
    elif isinstance(run.data, ColumnsData):
        raise ConfigError("data.kind=columns: a federation has no parties; start tacit party")
    elif not site.published:
        raise ConfigError(
            f"data.dataset={run.data.dataset}: is published data, and this member has rows of its "
            "own; `tacit join --published FOLDER` takes part in such runs"
        )


def check_files(offer: Offer, folder: Path) -> None:
    """Raise OtherFile, which names the file, unless `folder` has each file as the offer states."""
    for name, sha256 in offer.files.items():
        check_file(folder, name, sha256)


def check_file(folder: Path, name: str, sha256: str) -> None:
    """Raise OtherFile unless the file `name` of `folder` has this SHA-256, and is no link."""
    path = folder / name
    if any(each.is_symlink() for each in (path, *path.parents[: len(Path(name).parts) - 1])):
        raise OtherFile(f"{name}: is a link, or lies behind one; an offer's files are files")
    try:
        here = digest(path)
    except DataError as error:
        raise OtherFile(f"{name}: cannot be read: {error}") from error
    if here != sha256:
        raise OtherFile(f"{name}: is not the file that was offered: SHA-256 {here}, not {sha256}")


def _read(offer: Offer, folder: Path, site: Site | None, test: str | None = None) -> RunFile:
    origin = f"offer {offer.run}"
    tree = dict(offer.file)
    if test is not None and is_own_data(tree.get("data")):
        tree["data"] = tree["data"] | {"test": test}
    run = config.read(tree, origin, folder, site=site, own_code=site is None)
    try:
        check_offered(run)
        _check_named(offer, run)
    except ConfigError as error:
        raise ConfigError(f"{origin}: {error}") from error
    return run


def check_offered(run: RunFile) -> None:
    """Raise ConfigError, in one line, for a run that cannot be a federation's."""
    if run.algorithm.worker != "edge":
        raise ConfigError(
            f"algorithm.name={run.algorithm.name}: has no edges with rows of their own; a "
            "federation's runs are horizontal, with a server"
        )
    if run.model.name == "python":
        raise ConfigError(f"model.entry={run.model.entry}: is code; an offer's model is a graph")
    if run.data.fronts:
        raise ConfigError(f"data.features.front={run.data.fronts[0]}: is code; freeze it")
    if isinstance(run.algorithm, AlgorithmSettings) and run.algorithm.edge is None:
        raise ConfigError("algorithm.edge: missing; sites have none of the algorithm's code")


def files_of(run: RunFile) -> Iterator[str]:
    """Yield the names of the public files that a run file names. Raises ConfigError."""
    parts = run.model.parts(run.folder)
    if parts is not None:
        yield from (path.as_posix() for path in parts.files())
    yield from (path.as_posix() for path in run.data.files(run.folder))


def code_at_sites(run: RunFile) -> dict[str, str | None]:
    """Return what code a site runs, by entry: the SHA-256 that the run file states, if it does."""
    code: dict[str, str | None] = {}
    if run.data.entry_of_rows is not None:
        code[run.data.entry_of_rows] = None
    if isinstance(run.algorithm, AlgorithmSettings):
        task = run.algorithm.edge
        if isinstance(task, OwnStepsTask):
            code[task.entry] = task.code
    return code


def _check_named(offer: Offer, run: RunFile) -> None:
    """Raise ConfigError unless the offer states each file and code of its run file, no other."""
    named = set(files_of(run))
    if strange := sorted(named.symmetric_difference(offer.files)):
        raise ConfigError(f"files: {strange[0]} is in the run file or the offer, not in both")
    code = code_at_sites(run)
    if strange := sorted(set(code).symmetric_difference(offer.code)):
        raise ConfigError(f"code: {strange[0]} is in the run file or the offer, not in both")
    for entry, sha256 in code.items():
        if sha256 not in (None, offer.code[entry]):
            raise ConfigError(f"code: {entry} has another SHA-256 in the run file")


def _check_code(entry: str, sha256: str, folder: Path) -> None:
    try:
        here = entry_digest(entry, folder, "code")
    except ConfigError as error:
        raise CodeNeeded(entry, sha256, "its code is not here") from error
    if here != sha256:
        raise CodeNeeded(entry, sha256, f"other code is here, SHA-256 {here}")
