"""Changes the rules of a federation's broker while it runs: who may talk in which run.

A rule is kept durably first, and then made the broker's by its plugin's own commands. A user whose
rights change is disconnected by the plugin, and comes again at once: so what was under way to it
under the old rules is gone.
"""

from __future__ import annotations

import itertools
import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from tacit.errors import ServiceError
from tacit.protocol import topics
from tacit_services.enrollment.acl import aggregator_name
from tacit_services.federation.kept_rules import CONTROL, KeptRules, role, run_role
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.transport.tls import Tls

log = logging.getLogger("tacit.federation")
_ANSWER_SECONDS = 3.0  # after which a command is given again: an answer of QoS 0 may be lost
_EXISTS = ("Client already exists", "Role already exists")
_GONE = ("Client not found", "Role not found")

PluginCommand = dict[str, Any]


class BrokerRules:
    """Who may talk in which run. Every rule is durable, and in force, when its method returns.

    Each method raises ServiceError where the broker does not confirm in time. The rule then holds
    from the broker's next start on, and a second call makes sure of it before. Idempotent, and for
    any thread.
    """

    def __init__(
        self,
        kept: KeptRules,
        broker: str,
        tls: Tls,
        reread: Callable[[], None],
        seconds: float = 30.0,
    ) -> None:
        """Connect as the host. seconds: for the broker to answer, each time.

        reread: asks the broker to read the list of revoked certificates again. Raises ServiceError
        where the broker does not answer.
        """
        self._kept = kept
        self._reread = reread
        self._seconds = seconds
        self._mutex = threading.Lock()
        self._numbers = itertools.count()
        self._answers: dict[str, dict[str, Any]] = {}
        self._heard = threading.Condition()
        self._connection = Connection(broker, "rules", [f"{CONTROL}/response"], self._hear, tls=tls)
        self._connection.start(seconds)

    def open_run(self, run: str) -> None:
        """Let the aggregator of `run` talk to the members that are let in.

        It shows a certificate of its own, of the name `acl.aggregator_name(run)`.
        """
        with self._mutex:
            self._kept.add(run)
            self._let_in(run, aggregator_name(run))

    def open(self, run: str, member_id: str) -> None:
        """Let a member write and read its own topics of `run`, and nothing else of it."""
        with self._mutex:
            self._kept.add(run, member_id)
            self._let_in(run, aggregator_name(run))
            self._let_in(run, member_id)

    def close(self, run: str, member_id: str) -> None:
        """Take this back: from now on nothing of `run` passes to or from this member.

        The run's aggregator hears that it has left.
        """
        with self._mutex:
            self._kept.remove(run, member_id)
            self._shut_out(run, member_id)
            self._connection.publish(topics.presence(run, member_id), b"left", retain=True)

    def close_run(self, run: str) -> None:
        """Take all rules of `run` back, its aggregator's too, and what the broker retains of it."""
        with self._mutex:
            users = self._kept.remove(run)
            for user in users:
                self._shut_out(run, user)
                self._connection.publish(topics.presence(run, user), b"", retain=True)
            self._do([{"command": "deleteClient", "username": aggregator_name(run)}], _GONE)
            self._connection.publish(topics.model(run), b"", retain=True)

    def disconnect(self, member_id: str) -> None:
        """End a member's connections, and its rights in all runs: it was revoked.

        The authority must have revoked its certificate before: then it does not get in again.
        """
        with self._mutex:
            self._reread()
            # It is asked twice, as it hears of the signal between two of its steps.
            for _ in range(2):
                self._roles_of(member_id)
            for run in self._kept.remove_member(member_id):
                self._shut_out(run, member_id)
                self._connection.publish(topics.presence(run, member_id), b"left", retain=True)
            # The plugin throws out whom it deletes, and knows nobody who is let in to no run.
            commands: list[PluginCommand] = [
                {"command": "createClient", "username": member_id},
                {"command": "deleteClient", "username": member_id},
            ]
            self._do(commands, (*_EXISTS, *_GONE))

    def runs(self) -> Mapping[str, Sequence[str]]:
        """Return the members that are let in, by run."""
        return self._kept.runs()

    def stop(self) -> None:
        """End the host's own connection. Idempotent."""
        self._connection.stop()

    # -- commands --

    def _let_in(self, run: str, user: str) -> None:
        """Give `user` its role, unless it has it: it would be disconnected for nothing."""
        wanted = run_role(run, user)
        deadline = time.monotonic() + self._seconds
        while wanted not in self._roles_of(user):
            if time.monotonic() > deadline:
                raise ServiceError(f"broker: {user} does not get its rights in run {run!r}")
            commands: list[PluginCommand] = [
                {"command": "createClient", "username": user},
                {"command": "createRole", **role(run, user)},
            ]
            self._do(commands, _EXISTS)
            # An answer that was lost: the second time it is "Internal error".
            add = {"command": "addClientRole", "username": user, "rolename": wanted}
            self._do([add], ("Internal error",))

    def _shut_out(self, run: str, user: str) -> None:
        self._do([{"command": "deleteRole", "rolename": run_role(run, user)}], _GONE)

    def _roles_of(self, user: str) -> set[str]:
        (answer,) = self._do([{"command": "getClient", "username": user}], _GONE)
        client = answer.get("data", {}).get("client", {})
        return {entry["rolename"] for entry in client.get("roles", ())}

    def _do(self, commands: list[PluginCommand], accepted: Sequence[str]) -> list[dict[str, Any]]:
        """Give commands until the broker has answered all of them; returns its answers.

        accepted: errors that say that it was so already. Raises ServiceError.
        """
        numbered = [command | {"correlationData": str(next(self._numbers))} for command in commands]
        payload = json.dumps({"commands": numbered}).encode()
        names = [command["correlationData"] for command in numbered]
        deadline = time.monotonic() + self._seconds
        while True:
            self._connection.publish(CONTROL, payload)
            with self._heard:
                if self._heard.wait_for(
                    lambda: all(name in self._answers for name in names), _ANSWER_SECONDS
                ):
                    answers = [self._answers[name] for name in names]
                    self._answers.clear()
                    break
            if time.monotonic() > deadline:
                raise ServiceError(
                    f"broker: no answer to {commands[0]['command']} within {self._seconds:g} s; "
                    f"it holds from the broker's next start on"
                )
        for answer in answers:
            error = answer.get("error")
            if error and error not in accepted:
                raise ServiceError(f"broker: {answer.get('command')}: {error}")
        return answers

    def _hear(self, inbound: Inbound) -> None:
        try:
            answers = json.loads(inbound.payload)["responses"]
        except (ValueError, KeyError, TypeError) as error:
            log.warning("the broker's answer cannot be read: %s", error)
            answers = []
        with self._heard:
            for answer in answers:
                if "correlationData" in answer:
                    self._answers[answer["correlationData"]] = answer
            self._heard.notify_all()
        inbound.done()
