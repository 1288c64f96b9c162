"""The members of a federation: who has joined, under which number and name, with which key.

`members.json` in FOLDER/members is {"format": 1, "members": [{"number", "name", "key", "since",
"version", "revoked", "left"}]}. A number is never given twice, and a member is never taken out:
runs, ledgers and certificates name it by its number. `heard.json` beside it is when each was heard
of last; it may be a minute old after a crash.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path

from tacit.errors import ConfigError
from tacit_services.disk.json_register import JsonRegister
from tacit_services.enrollment.human_names import alike, checked_human_name

MOST = 9_999  # members of one federation; a run's shares are dealt for so many
SAVED_EVERY = 60.0  # seconds between two writes of heard.json
_FORMAT = 1
_ID = re.compile(r"edge-\d+")


def member_id(number: int) -> str:
    """Return the id of member `number`: in certificates, topics, rules and ledgers."""
    return f"edge-{number}"


class NotAdmittedError(ConfigError):
    """A machine that asks to join cannot: its name is taken, or it was a member and was revoked."""


@dataclass(frozen=True, slots=True)
class Member:
    """A member.

    name: what people call it. key: SHA-256 of its public key, in hex. since, revoked: seconds since
    1970, or None while it is a member. version: of its tacit, when it joined. left: when it has
    left by itself, after which it may come back with its key, or None.
    """

    number: int
    name: str
    key: str
    since: float
    version: str = ""
    revoked: float | None = None
    left: float | None = None

    @property
    def id(self) -> str:
        """Its id: `edge-N`."""
        return member_id(self.number)


@dataclass(frozen=True, slots=True)
class LastHeard:
    """When a member was heard of last, in seconds since 1970, and the version it then had."""

    id: str
    at: float
    version: str


class MemberRoll:
    """Who is and was a member at one moment: read once, however often it is asked.

    asked: the ids of all who are shown offers, by number; of none that was revoked or has left.
    """

    def __init__(self, members: Iterable[Member]) -> None:
        everybody = sorted(members, key=lambda member: member.number)
        self._names = {member.id: member.name for member in everybody}
        self.asked = [
            member.id for member in everybody if member.revoked is None and member.left is None
        ]

    def name(self, identity: str) -> str:
        """Return the name of a member's id; the id where nobody has it."""
        return self._names.get(identity, identity)


class Members:
    """The members of the federation whose FOLDER/members is `folder`.

    Several processes may work on it: what is returned is newly read. One object may be used by
    several threads.
    """

    def __init__(self, folder: Path, clock: Callable[[], float] = time.time) -> None:
        """Open it; a new one has nobody. clock: seconds since 1970."""
        self._clock = clock
        self._file = JsonRegister(folder / "members.json", "members", _FORMAT, Member)
        self._heard_file = JsonRegister(folder / "heard.json", "heard", _FORMAT, LastHeard)
        self._mutex = threading.Lock()
        self._heard = {record.id: record for record in self._heard_file.all()}
        self._saved_at = clock()

    def admit(self, key: str, name: str | None, machine: str, version: str) -> Member:
        """Return the member with this key; a new one gets the next free number.

        key: SHA-256 of its public key, in hex. name: what people are to call it. Without one it is
        called as its `machine`, with the first free number behind. The same key gets the same
        member again, under the name that it has. Raises NotAdmittedError where the name is taken,
        or the member was revoked, and ConfigError for what cannot be a name.
        """
        with self._file.changing() as members:
            for place, member in enumerate(members):
                if member.key == key:
                    if member.revoked is not None:
                        raise NotAdmittedError(f"{member.name!r} ({member.id}) was revoked")
                    members[place] = replace(member, left=None)
                    return members[place]
            if len(members) >= MOST:
                raise NotAdmittedError(f"the federation has {MOST} members; no number is free")
            number = 1 + max((member.number for member in members), default=-1)
            chosen = _free_name(members, name, machine)
            member = Member(number, chosen, key, self._clock(), version)
            members.append(member)
        return member

    def all(self) -> list[Member]:
        """Return everybody who ever was a member, by number."""
        return sorted(self._file.all(), key=lambda member: member.number)

    def roll(self) -> MemberRoll:
        """Return who is and was a member now."""
        return MemberRoll(self._file.all())

    def get(self, identity: str) -> Member | None:
        """Return the member of this id; None: there is none. It may be revoked."""
        return next((member for member in self._file.all() if member.id == identity), None)

    def named(self, name: str) -> Member:
        """Return the member of this id or human name. Raises ConfigError: there is none.

        An id comes first: nobody takes another's place by a name. Of several of a name, of which at
        most one is not revoked, it is that one, or the newest.
        """
        if (member := self.get(name)) is not None:
            return member
        members = [member for member in self.all() if member.name == name]
        if not members:
            raise ConfigError(f"{name!r}: no member has this name; tacit members list shows them")
        return max(members, key=lambda member: (member.revoked is None, member.number))

    def revoke(self, name: str) -> Member:
        """Let the member of this id or human name be none from now on; returns it.

        Its certificate and its connections are for others to end. Raises ConfigError: nobody has
        this name.
        """
        wanted = self.named(name)
        with self._file.changing() as members:
            place = next(i for i, m in enumerate(members) if m.number == wanted.number)
            if members[place].revoked is None:
                members[place] = replace(members[place], revoked=self._clock())
            return members[place]

    def leave(self, identity: str) -> Member:
        """Let the member of this id be none until its key joins again; returns it.

        Raises ConfigError: nobody has this id.
        """
        with self._file.changing() as members:
            for place, member in enumerate(members):
                if member.id == identity:
                    members[place] = replace(member, left=member.left or self._clock())
                    return members[place]
        raise ConfigError(f"{identity!r}: no member has this id")

    # -- when they were heard of --

    def heard(self, identity: str, version: str = "") -> None:
        """Note that a member was heard of now. Cheap: it is written once in a while.

        version: of its tacit; "": as before.
        """
        with self._mutex:
            before = self._heard.get(identity)
            known = version or (before.version if before else "")
            self._heard[identity] = LastHeard(identity, self._clock(), known)
            due = self._clock() - self._saved_at >= SAVED_EVERY
        if due:
            self.save()

    def last_heard(self, identity: str) -> LastHeard | None:
        """Return when a member was heard of last; None: never since it joined."""
        with self._mutex:
            return self._heard.get(identity)

    def save(self) -> None:
        """Write down who was heard of when. Raises ConfigError."""
        with self._mutex:
            records = list(self._heard.values())
            self._saved_at = self._clock()
        with self._heard_file.changing() as written:
            newest = {record.id: record for record in written}
            for record in records:
                if record.id not in newest or newest[record.id].at < record.at:
                    newest[record.id] = record
            written[:] = newest.values()


def _free_name(members: list[Member], name: str | None, machine: str) -> str:
    holders = {alike(member.name): member for member in members if member.revoked is None}
    if name is not None:
        checked_human_name("name", name)
        if _ID.fullmatch(alike(name)):
            raise NotAdmittedError(f"name={name!r}: reads like a member's id; choose another")
        holder = holders.get(alike(name))
        if holder is not None:
            raise NotAdmittedError(
                f"the name {name!r} is taken by {holder.id}; choose another with --as"
            )
        return name
    stem = machine if machine and _fits(machine) else "member"
    if _ID.fullmatch(alike(f"{stem}-1")):
        stem = "member"
    return next(
        candidate
        for number in itertools.count(1)
        if alike(candidate := f"{stem}-{number}") not in holders
    )


def _fits(machine: str) -> bool:
    try:
        checked_human_name("machine", f"{machine}-{MOST}")
    except ConfigError:
        return False
    return True
