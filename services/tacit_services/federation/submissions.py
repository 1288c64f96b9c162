"""What is submitted becomes a run: its offer is checked, and its files are put into its folder."""

from __future__ import annotations

import json
import re
import shutil
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from importlib.machinery import all_suffixes
from pathlib import Path
from typing import Any, Literal

from pydantic import ValidationError

from tacit.errors import ConfigError, DataError, ServiceError, TacitError, WireError
from tacit.protocol.topics import checked_name
from tacit.shown import printable
from tacit_services.children.child_limits import LimitPassed
from tacit_services.enrollment.acl import aggregator_name
from tacit_services.federation.file_pool import FilePool, NoRoom, placed
from tacit_services.federation.people import Person, Right
from tacit_services.federation.run_facts import RunFacts
from tacit_services.federation.run_records import RunRecord, RunRecords
from tacit_services.offers.file_names import a_folder_too
from tacit_services.offers.offer import OFFER, Offer
from tacit_services.offers.submission import FILES, Submission, stayed_at_host

OPEN = 100  # runs of one researcher that are not over: members look at each
_PLAIN = re.compile(r"([A-Za-z0-9_][A-Za-z0-9_.-]{0,99}/){0,4}[A-Za-z0-9_][A-Za-z0-9_.-]{0,99}")


class Refused(TacitError):  # noqa: N818 (a verdict on a request)
    """A request that is refused.

    status: of the HTTP answer. faults: all that is wrong, where that is known.
    """

    def __init__(self, status: int, why: str, faults: Sequence[str] = ()) -> None:
        super().__init__(why)
        self.status = status
        self.faults = tuple(faults)


class Submissions:
    """The desk at which offers are checked."""

    def __init__(
        self,
        records: RunRecords,
        pool: FilePool,
        code: Path,
        check: Callable[[Path], RunFacts],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """code: FOLDER/code, where the operator puts code that may run here.

        check: returns the facts of the run in a folder; it raises ConfigError, DataError where it
        cannot be run, and ServiceError where it cannot be checked.
        """
        self._records = records
        self._pool = pool
        self._code = code
        self._check = check
        self._clock = clock
        self._lock = threading.Lock()
        self._coming: set[str] = set()  # names of runs that are being checked

    def taken(
        self, content: dict[str, Any], by: Person, signed_by: Literal["host"] | None = None
    ) -> RunRecord:
        """Return the record of a new run whose files are in place, durably. Raises Refused.

        The same submission again is the same run, so a client that got no answer may ask once more.
        signed_by: the signer that the offer must name.
        """
        try:
            submission = Submission.model_validate(content)
            offer = Offer.parse(submission.offer.encode())
        except ValidationError as error:
            item = error.errors(include_url=False)[0]
            field = printable(".".join(map(str, item["loc"])), 200)
            raise Refused(422, f"{field}: {item['msg']}") from error
        except WireError as error:
            raise Refused(422, str(error)) from error
        if offer.researcher.signed_by != signed_by:
            raise Refused(422, "researcher.signed_by: the host says so of what it has signed alone")
        if by.right is Right.RESEARCHER and offer.researcher.name != by.name:
            raise Refused(
                403,
                f"researcher={offer.researcher.name!r}: this token is {by.name}'s; submit as them",
            )
        earlier = self._records.get(offer.run)
        if earlier is not None and self._is_of(earlier, offer, submission):
            return earlier
        self._check_room(by)
        with self._named(offer.run):
            folder = self._records.folder(offer.run)
            self._placed(folder, offer, submission)
            submission.keep(folder)
            record = self._checked(folder, offer)
            self._records.add(record)
        return record

    def _is_of(self, record: RunRecord, offer: Offer, submission: Submission) -> bool:
        """Return whether a run was submitted with these very bytes."""
        if record.fingerprint != offer.fingerprint:
            return False
        try:
            return Submission.kept_with(offer, self._records.folder(record.name)) == submission
        except (OSError, ValueError, TypeError):
            return False

    def public(self, run: str) -> bytes:
        """Return the offer of a run, as members are shown it."""
        return (self._records.folder(run) / OFFER).read_bytes()

    def files(self, run: str) -> list[str]:
        """Return the SHA-256 of the files that members may fetch."""
        content = json.loads(self.public(run))
        return list(content["files"].values())

    def named(self) -> set[str]:
        """Return the SHA-256 of every file that a run names, at its host or for its members."""
        digests: set[str] = set()
        for record in self._records.all():
            digests.update(self.files(record.name))
            digests.update(stayed_at_host(self._records.folder(record.name)))
        return digests

    @contextmanager
    def _named(self, run: str) -> Iterator[None]:
        """Let no other submission have the name in the block. Raises Refused where one has it."""
        try:
            checked_name("run", aggregator_name(run))  # in its certificate
        except ConfigError as error:
            raise Refused(422, f"run {run!r}: is too long; choose a shorter name") from error
        with self._lock:
            if run in self._coming or self._records.get(run) is not None:
                raise Refused(409, f"run {run!r}: there is one of this name; choose another")
            self._coming.add(run)
        try:
            yield
        finally:
            with self._lock:
                self._coming.discard(run)

    def _check_room(self, by: Person) -> None:
        """Raise Refused where the disk has no room, or a researcher has OPEN runs."""
        try:
            self._pool.check_room()
        except NoRoom as error:
            raise Refused(507, str(error)) from error
        if by.right is not Right.RESEARCHER:
            return
        theirs = [each for each in self._records.all() if each.researcher == by.name]
        if sum(not record.over for record in theirs) >= OPEN:
            raise Refused(409, f"{by.name}: has {OPEN} runs that are not over; stop some first")

    def _placed(self, folder: Path, offer: Offer, submission: Submission) -> None:
        """Put the offer's files and the host's into the run's folder, anew. Raises Refused."""
        place = folder / FILES
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir(parents=True, mode=0o700)
        for name in submission.at_host:
            if not is_plain(name) or name in offer.files:
                raise Refused(422, f"at_host: {name[:200]!r} is no plain relative name of its own")
        names = submission.at_host | offer.files
        if (twice := a_folder_too(names)) is not None:
            raise Refused(422, f"{twice[:200]!r}: is both a file and a folder")
        for name, digest in names.items():
            path = place / name
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._copy(name, digest, submission, path)

    def _copy(self, name: str, digest: str, submission: Submission, to: Path) -> None:
        source = self._pool.path(digest)
        if source is None:
            raise Refused(422, f"{name}: its file {digest[:16]}… was not uploaded")
        if name in submission.at_host and not _is_test(name, submission):
            # Nothing that came over the network is executed: the operator has put this very file.
            own = self._code / digest
            if not own.is_file():
                raise Refused(
                    403,
                    f"{name}: is code that runs at the host; its operator allows it by "
                    f"`tacit submit` at the host, or by a copy as {own}",
                )
            source = own
        placed(source, to)

    def _checked(self, folder: Path, offer: Offer) -> RunRecord:
        try:
            facts = self._check(folder)
        except (ConfigError, DataError) as error:
            raise Refused(422, str(error)) from error
        except LimitPassed as error:
            raise Refused(422, f"run {offer.run}: {error} to check") from error
        except ServiceError as error:
            raise Refused(500, f"run {offer.run}: its check {error}") from error
        return RunRecord(
            offer.run,
            offer.fingerprint,
            offer.researcher.name,
            self._clock(),
            facts.needed,
            facts.least,
            facts.wait,
            facts.updates,
            grace=facts.grace,
        )


def _is_test(name: str, submission: Submission) -> bool:
    """Return whether a file is test data: no name with which Python imports it.

    What is named the test set may lie where an entry of the run file looks for a module.
    """
    return submission.tests(name) and not is_importable(name)


def is_importable(name: str) -> bool:
    """Return whether Python imports a file of this name."""
    return name.lower().endswith(tuple(all_suffixes()))


def is_plain(name: str) -> bool:
    """Return whether this is a plain relative name of a file."""
    return _PLAIN.fullmatch(name) is not None
