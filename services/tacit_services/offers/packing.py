"""A run file becomes an offer: networks are frozen, files are hashed, all of it is signed.

    packed = pack(Path("run.toml"), "retina-1", key, into)    # at the researcher's
    packed = pack_data(text, None, key, folder)               # at the host, of data alone

The folder has then all that the host needs. `packed.offer.files` are for members to fetch, and
`packed.at_host` stays at the host: the test set, and code of the host's own.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from tacit import config
from tacit.config import RunFile, as_tree
from tacit.config.algorithm_entries import is_own
from tacit.config.features import FeaturedData, FrontSection
from tacit.config.own_data import OwnData
from tacit.datasets.own.file_reading import digest, located
from tacit.errors import ConfigError, ConfigFaults, WireError
from tacit.user_code import entry_digest, entry_files
from tacit_services.disk.files import PUBLIC, write
from tacit_services.offers.file_names import check_file_name
from tacit_services.offers.offer import OFFER, Offer, complaint
from tacit_services.offers.offer_freezing import frozen_tree
from tacit_services.offers.offer_reading import (
    check_offered,
    code_at_sites,
    definition_at_host,
    files_of,
)
from tacit_services.offers.researcher_key import ResearcherKey
from tacit_services.offers.submission import Submission

_NO_CODE = "is code, and the host runs none that was uploaded; use tacit submit on your machine"


@dataclass(frozen=True, slots=True)
class PackedOffer:
    """An offer with its files, in `folder`.

    at_host: the files, or folders, that stay at the host. test: the public test set, one of them,
    or None.
    """

    offer: Offer
    folder: Path
    at_host: tuple[str, ...]
    test: str | None

    def host_files(self) -> dict[str, str]:
        """Return the SHA-256 of each file that stays at the host, by name; of folders, theirs."""
        paths = [
            path
            for name in self.at_host
            for path in ([self.folder / name, *sorted((self.folder / name).rglob("*"))])
            if path.is_file()
        ]
        return {path.relative_to(self.folder).as_posix(): digest(path) for path in paths}

    def submission(self) -> Submission:
        """Return what is sent to the host, once the files were uploaded. Raises ConfigError."""
        offer = self.offer.content().decode()
        try:
            return Submission(offer=offer, at_host=self.host_files(), test=self.test)
        except ValidationError as error:
            raise ConfigError(f"offer {self.offer.run}: {complaint(error)}") from error


def pack(run_file: Path, run: str, key: ResearcherKey, into: Path) -> PackedOffer:
    """Return the offer of `run_file` under the name `run`, signed, in `into`/offer.json.

    into: an empty folder; made if it is not there. A module that the run file names is executed
    once, here, and becomes a graph. What was packed is read back as the host reads it. Raises
    ConfigError, in one line, for what cannot be offered.
    """
    stated = config.load(run_file, federation=True)
    _refuse(stated)
    into.mkdir(parents=True, exist_ok=True)
    if any(into.iterdir()):
        raise ConfigError(f"{into}: is not empty; an offer is packed into a folder of its own")
    at_host = tuple(_copied(stated.folder, into, _of_host(stated)))
    for name in _copied(stated.folder, into, _of_members(stated)):
        _check_name(name)
    packed = _packed(stated, frozen_tree(stated, into), run, key, at_host, into)
    write(into / OFFER, packed.offer.content(), PUBLIC)
    return packed


def pack_data(text: str, run: str | None, key: ResearcherKey, folder: Path) -> PackedOffer:
    """Return the offer of the run file `text`, whose files lie in `folder`, signed, as `pack` does.

    run: None for the name that the run file states. Guarantee: nothing is executed, be it in
    `folder` or installed, and nothing is written. A run file that names code is refused. Raises
    ConfigFaults with all that is wrong, or ConfigError.
    """
    stated = config.parse(text, "run file", folder=folder, federation=True, own_code=False)
    if code := list(_named_code(stated)):
        raise ConfigFaults("run file", [f"{entry}: {_NO_CODE}" for entry in code])
    _refuse(stated)
    faults: list[str] = []
    at_host, _, _ = (
        _listed(paths, faults)
        for paths in (_of_host(stated), _of_model(stated), _of_features(stated))
    )
    if faults:
        raise ConfigFaults("run file", faults)
    return _packed(stated, as_tree(stated), run or stated.run.name, key, at_host, folder)


def _packed(
    stated: RunFile,
    tree: dict[str, dict[str, Any]],
    run: str,
    key: ResearcherKey,
    at_host: tuple[str, ...],
    folder: Path,
) -> PackedOffer:
    """Return the signed offer of `tree`, read back as the host reads it. Raises ConfigError."""
    offer = _offer(tree, run, key, folder)
    test = stated.data.test if isinstance(stated.data, OwnData) else None
    definition_at_host(offer, folder, test).define().build_model()
    return PackedOffer(offer, folder, at_host, test)


def _listed(paths: Iterator[Path], faults: list[str]) -> tuple[str, ...]:
    """Return names of files; what is wrong with them goes to `faults`."""
    names: list[str] = []
    try:
        names.extend(path.as_posix() for path in paths)
    except ConfigError as error:
        faults.append(str(error))
    return tuple(names)


def _named_code(run: RunFile) -> Iterator[str]:
    """Yield each key of a run file that names code, with its value."""
    if run.model.name == "python":
        yield f"model.entry={run.model.entry}"
    for front in run.data.fronts:
        yield f"data.features.front={front}"
    if is_own(run.algorithm.name):
        yield f"algorithm.entry={run.algorithm.name}"
    for entry in code_at_sites(run):
        section = "data" if entry == run.data.entry_of_rows else "algorithm.edge"
        yield f"{section}.entry={entry}"
    for metric in run.evaluation.metrics:
        if is_own(metric):
            yield f"evaluation.metrics={metric}"


def _refuse(run: RunFile) -> None:
    """Raise ConfigError, in one line, for a run that no offer can be made of."""
    if run.algorithm.worker != "edge":
        check_offered(run)
    if run.model.control_flow == "trusted":
        raise ConfigError(
            "model.control_flow=trusted: is code at every site; a federation's models are graphs, "
            "so leave it out"
        )
    if run.data.trusted_fronts:
        raise ConfigError(
            f"data.features.front={run.data.trusted_fronts[0]}: control_flow=trusted is code at "
            "every site; leave it out"
        )


def _of_members(run: RunFile) -> Iterator[Path]:
    """Yield the public files that members fetch, but for those that freezing makes."""
    yield from _of_model(run)
    yield from _of_features(run)


def _of_model(run: RunFile) -> Iterator[Path]:
    if run.model.name == "graph":
        parts = run.model.parts(run.folder)
        assert parts is not None
        yield from parts.files()


def _of_features(run: RunFile) -> Iterator[Path]:
    data = run.data
    if isinstance(data, FeaturedData) and data.fronts:
        assert not isinstance(data.features, str)
        modules = [step for step in data.features if isinstance(step, FrontSection)]
        left = tuple(step for step in data.features if step not in modules or step.graph)
        data = data.model_copy(update={"features": left or "none"})
    yield from data.files(run.folder)


def _of_host(run: RunFile) -> Iterator[Path]:
    """Yield what stays at the host: the test set, and code, relative to the run file's folder."""
    if isinstance(run.data, OwnData) and run.data.test is not None:
        folders = run.data.plain_reader(run.folder).folders
        test = located(run.data.test, run.folder, "data.test", folders=folders)
        yield test.relative_to(run.folder.resolve())
    if is_own(run.algorithm.name):
        yield from entry_files(run.algorithm.name, run.folder, "algorithm.entry")
    for metric in run.evaluation.metrics:
        if is_own(metric):
            yield from entry_files(metric, run.folder, "evaluation.metrics")
    for entry in code_at_sites(run):
        yield from entry_files(entry, run.folder, "code")


def _copied(source: Path, into: Path, names: Iterator[Path]) -> Iterator[str]:
    """Copy files and folders, and yield their names, each once."""
    for name in dict.fromkeys(names):
        target = into / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if (source / name).is_dir():
            shutil.copytree(source / name, target)
        else:
            shutil.copyfile(source / name, target)
        yield name.as_posix()


def _check_name(name: str) -> None:
    try:
        check_file_name(name)
    except ValueError as error:
        raise ConfigError(f"file {error}; rename it") from error


def _offer(tree: dict[str, dict[str, Any]], run: str, key: ResearcherKey, into: Path) -> Offer:
    """Return the signed offer of `tree`, whose files are in `into`."""
    read = config.read(tree, f"offer {run}", into, site=None, own_code=True)
    check_offered(read)
    names = sorted(set(files_of(read)))
    code = {entry: entry_digest(entry, into, "code") for entry in code_at_sites(read)}
    try:
        offer = Offer(
            run=run,
            file=tree,
            files={name: digest(into / name) for name in names},
            code=code,
            researcher=key.public(),
        )
        return Offer.parse(key.signed(offer).content())
    except ValidationError as error:
        raise ConfigError(f"offer {run}: {complaint(error)}") from error
    except WireError as error:
        raise ConfigError(f"offer {run}: {error}; it is too large to be shown") from error
