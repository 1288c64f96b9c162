"""A run file that came by the host's page becomes an offer at the host, which signs it.

A browser has no key of its researcher's, so the host signs with one of its own, kept in its folder,
and the offer says so. A researcher whom owners are to know by their own key uses `tacit submit`.

Guarantee: what was uploaded is data here. Nothing of it is executed, and no run file that names
code is packed. What packs it is a process of its own, with limits: the host itself builds nothing.
"""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict, Field

from tacit.errors import ConfigError, ConfigFaults, ServiceError
from tacit_services.children.child_limits import ChildLimits, LimitPassed
from tacit_services.federation.file_pool import FilePool, placed
from tacit_services.federation.packed_apart import PACKING, packed_apart
from tacit_services.federation.people import Person, Right
from tacit_services.federation.submissions import Refused, is_importable, is_plain
from tacit_services.offers.file_names import a_folder_too
from tacit_services.offers.offer import MOST_FILES, RUN
from tacit_services.offers.researcher_key import ResearcherKey
from tacit_services.offers.submission import Submission

AT_ONCE = 4  # run files that are packed, of a person each; each may have a part of the memory
_MOST_TEXT = 1 << 20  # characters of a run file
_FAILED = "failed.log"  # what the last one printed that has ended by itself


class RunFileUpload(BaseModel):
    """A run file, and the SHA-256 of each file that lies beside it, by name.

    text: TOML. name: of the run; left out: as the run file says. The files were uploaded before.
    """

    model_config = ConfigDict(extra="forbid")
    text: str = Field(min_length=1, max_length=_MOST_TEXT)
    files: dict[str, str] = Field({}, max_length=2 * MOST_FILES)  # members' and the host's
    name: str | None = Field(None, pattern=RUN)


class HostPacking:
    """Packs and signs at the host."""

    def __init__(
        self, folder: Path, pool: FilePool, key: Path, limits: ChildLimits = PACKING
    ) -> None:
        """folder: for what is being packed; what is there is removed. pool: uploaded files.

        key: the file of the host's signing key, made at its first use. limits: of a process that
        packs. Raises OSError.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(mode=0o700)
        self._folder = folder
        self._pool = pool
        self._key = key
        self._limits = limits
        self._lock = threading.Lock()
        self._packing: set[str] = set()  # names of people whose run files are being packed

    def packed(self, upload: RunFileUpload, by: Person) -> Submission:
        """Return the submission of a run file in the name of `by`.

        Nobody holds the others up: a second one of the same person is refused meanwhile. Raises
        Refused, with all that is wrong: `faults`.
        """
        if not by.may(Right.RESEARCHER):
            raise Refused(403, "a reader's token submits no runs; ask for a researcher's")
        with self._place(by) as place:
            folder = place / "files"
            folder.mkdir()
            if faults := self._laid(upload.files, folder):
                raise Refused(422, "; ".join(faults), faults)
            try:
                return self._packed(upload, by, folder, place / _FAILED)
            except ConfigError as error:
                faults = [_without(folder, fault) for fault in _faults(error)]
                raise Refused(422, "; ".join(faults), faults) from error

    def _packed(self, upload: RunFileUpload, by: Person, folder: Path, log: Path) -> Submission:
        """Return the submission, made by another process. Raises Refused, ConfigError."""
        with self._lock:
            ResearcherKey.kept(self._key, by.name, "host")  # one process makes it
        try:
            return packed_apart(
                upload.text, upload.name, self._key, by.name, folder, log, self._limits
            )
        except LimitPassed as error:
            fault = f"the run file {error} to pack; make its network or its columns fewer"
            raise Refused(422, fault, [fault]) from error
        except ServiceError as error:
            log.replace(self._folder / log.name)
            raise Refused(500, f"the process that packs the run file {error}") from error

    @contextmanager
    def _place(self, by: Person) -> Iterator[Path]:
        """Yield a new folder for a person's run file. Raises Refused where none is to be had."""
        with self._lock:
            if by.name in self._packing:
                raise Refused(429, "a run file of yours is being packed; send this one after it")
            if len(self._packing) >= AT_ONCE:
                raise Refused(429, f"{AT_ONCE} run files are being packed; try again in a minute")
            self._packing.add(by.name)
        try:
            with tempfile.TemporaryDirectory(dir=self._folder) as place:
                yield Path(place)
        finally:
            with self._lock:
                self._packing.discard(by.name)

    def _laid(self, files: dict[str, str], folder: Path) -> list[str]:
        """Put uploaded files into `folder` by their names; returns what is wrong with them."""
        sources = {name: self._pool.path(digest) for name, digest in files.items()}
        faults = [fault for name, source in sources.items() if (fault := _fault_of(name, source))]
        if (twice := a_folder_too(files)) is not None:
            faults.append(f"{twice[:200]!r}: is both a file and a folder")
        if not faults:
            for name, source in sources.items():
                assert source is not None
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                placed(source, folder / name)
        return faults


def _fault_of(name: str, source: Path | None) -> str:
    """Return what is wrong with an uploaded file; "": nothing."""
    if not is_plain(name):
        return f"file {name[:200]!r}: is no plain relative name; rename it"
    if is_importable(name):
        return f"file {name}: is code, and the host runs none that was uploaded; leave it out"
    if source is None:
        return f"file {name}: was not uploaded, or was removed since; upload it again"
    return ""


def _faults(error: ConfigError) -> tuple[str, ...]:
    return error.faults if isinstance(error, ConfigFaults) else (str(error),)


def _without(folder: Path, words: str) -> str:
    """Return `words` without the name of a folder of the host's."""
    return words.replace(f"{folder}/", "").replace(str(folder), "what was uploaded")
