"""Who may talk in which run, kept in FOLDER/broker, and as the file of mosquitto's plugin.

`rules.json` is {"format": 1, "runs": [{"name", "members"}]}. The broker's own file is made of it at
every start: what the broker has written there since may have been cut off by a crash.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tacit.protocol import topics
from tacit_services.disk import files
from tacit_services.disk.json_register import JsonRegister
from tacit_services.enrollment.acl import (
    BROKER,
    OTHERWISE,
    Rights,
    aggregator_name,
    aggregator_rights,
    edge_rights,
    plugin_rules,
)

HOST = "host"  # the host's own certificate, with which it changes the rules
CONTROL = "$CONTROL/dynamic-security/v1"
_CONTROLLED = "$CONTROL/dynamic-security/#"
_FORMAT = 1

Role = dict[str, Any]


def run_role(run: str, user: str) -> str:
    """Return the name of the role with which `user` takes part in `run`."""
    return f"{run}/{user}"  # neither has a '/'


def role(run: str, user: str) -> Role:
    """Return this role of a member, or of the run's aggregator, as the plugin has it."""
    if user == aggregator_name(run):
        rights = aggregator_rights([run], user)
    else:
        rights = edge_rights([run], user)
    return {"rolename": run_role(run, user), "acls": plugin_rules(rights)}


@dataclass(frozen=True, slots=True)
class RunRules:
    """The members that may take part in a run."""

    name: str
    members: tuple[str, ...] = ()

    @property
    def users(self) -> tuple[str, ...]:
        """Everybody who may take part, its aggregator first."""
        return (aggregator_name(self.name), *self.members)


class KeptRules:
    """The rules in `folder`. Every change is durable when it returns."""

    def __init__(self, folder: Path) -> None:
        """Open them; in a new folder nobody may anything."""
        self._file = JsonRegister(folder / "rules.json", "runs", _FORMAT, RunRules)

    def runs(self) -> Mapping[str, Sequence[str]]:
        """Return the members of each run."""
        return {run.name: run.members for run in self._file.all()}

    def add(self, run: str, member: str | None = None) -> None:
        """Let a run be, and a member in it."""
        with self._file.changing() as runs:
            place = next((i for i, other in enumerate(runs) if other.name == run), None)
            if place is None:
                place = len(runs)
                runs.append(RunRules(run))
            if member is not None and member not in runs[place].members:
                runs[place] = replace(runs[place], members=(*runs[place].members, member))

    def remove(self, run: str, member: str | None = None) -> tuple[str, ...]:
        """Take a member out of a run, or all of the run; returns who was taken out of it."""
        with self._file.changing() as runs:
            for i, other in enumerate(runs):
                if other.name == run:
                    if member is None:
                        del runs[i]
                        return other.users
                    left = tuple(name for name in other.members if name != member)
                    runs[i] = replace(other, members=left)
                    return (member,)
        return ()

    def remove_member(self, member: str) -> list[str]:
        """Take a member out of all runs; returns which these were."""
        names = []
        with self._file.changing() as runs:
            for i, other in enumerate(runs):
                if member in other.members:
                    names.append(other.name)
                    left = tuple(name for name in other.members if name != member)
                    runs[i] = replace(other, members=left)
        return names

    def write_plugin_file(self, path: Path) -> None:
        """Write the plugin's file, for a broker that is about to start."""
        runs = self._file.all()
        roles: dict[str, list[str]] = {}
        for run in runs:
            for user in run.users:
                roles.setdefault(user, []).append(run_role(run.name, user))
        fixed = [_host_role(), {"rolename": BROKER, "acls": plugin_rules(_HEALTH)}]
        clients = {HOST: [HOST], BROKER: [BROKER]} | roles
        content = {
            "defaultACLAccess": OTHERWISE,
            "clients": [
                {"username": user, "roles": [{"rolename": name} for name in names]}
                for user, names in clients.items()
            ],
            "groups": [],
            "roles": fixed + [role(run.name, user) for run in runs for user in run.users],
        }
        files.write(path, (json.dumps(content, indent=0) + "\n").encode("ascii"), files.SECRET)


_HEALTH = Rights(BROKER, [topics.health()])


def _host_role() -> Role:
    kinds = ("publishClientSend", "publishClientReceive", "subscribePattern")
    acls = [{"acltype": kind, "topic": _CONTROLLED, "allow": True} for kind in kinds]
    # It takes back what the broker retains of a run that is over.
    acls.append({"acltype": kinds[0], "topic": topics.everything(), "allow": True})
    return {"rolename": HOST, "acls": acls}
