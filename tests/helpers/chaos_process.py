"""Edges and aggregators of the chaos test, forked from one warm process; an edge's network loses,
doubles and reorders.

`python -m tests.helpers.chaos_process` answers orders as crash_edge does. {"start": settings,
"log", "kind"} begins an edge or an aggregator. The product has no hooks: the child replaces
functions. Beside its log an edge writes what it has made durable ("put SEQ SHA-256") and what it
was told ("receipt SEQ STATUS"), each line before the thing itself takes effect elsewhere, so that
no kill can come between.
"""

from __future__ import annotations

import hashlib
import os
import random
from collections.abc import Callable
from typing import Any

from tacit_services.aggregator import main as aggregator_main
from tacit_services.edge import main as edge_main
from tacit_services.logs import to_stderr
from tacit_services.settings import AggregatorSettings, EdgeSettings, read_settings
from tacit_services.transport.mqtt import Connection, Inbound
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.session import Session

from tacit.protocol import wire
from tacit.protocol._pb import wire_pb2 as pb
from tests.helpers.crash_edge import forked, serve

LOST = 0.10  # of what the aggregator answers
TWICE, LATE = 0.05, 0.05  # of what comes and of what goes: doubled; overtaken by the next


class Faults:
    """A network between one edge and the broker that keeps no order and no count."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._held_in: list[Inbound] = []
        self._held_out: list[tuple[str, bytes]] = []

    def install(self) -> None:
        """Put it between the loop and its connection."""
        init, publish = Connection.__init__, Connection.publish

        def new_init(
            connection: Connection,
            broker: str,
            client_id: str,
            subscriptions: Any,
            on_message: Callable[[Inbound], None],
            **more: Any,
        ) -> None:
            init(
                connection,
                broker,
                client_id,
                subscriptions,
                lambda inbound: self.hear(inbound, on_message),
                **more,
            )

        def new_publish(
            connection: Connection, topic: str, payload: bytes, *, retain: bool = False
        ) -> None:
            if topic.split("/")[3] != "up":
                return publish(connection, topic, payload, retain=retain)
            if self.random.random() < LATE and not self._held_out:
                self._held_out.append((topic, payload))
                return None
            for _ in range(1 + (self.random.random() < TWICE)):
                publish(connection, topic, payload)
            while self._held_out:
                publish(connection, *self._held_out.pop())
            return None

        for name, replacement in (("__init__", new_init), ("publish", new_publish)):
            setattr(Connection, name, replacement)

    def hear(self, inbound: Inbound, on_message: Callable[[Inbound], None]) -> None:
        """Deliver one message from the broker, or none, or two, or one later."""
        if self.random.random() < LOST and "/down/" in inbound.topic:
            inbound.done()
            return
        if self.random.random() < LATE and not self._held_in:
            self._held_in.append(inbound)
            return
        on_message(inbound)
        if self.random.random() < TWICE:
            on_message(Inbound(inbound.topic, inbound.payload, lambda: None, inbound.retained))
        while self._held_in:
            on_message(self._held_in.pop())


def keep_account(path: str) -> None:
    """Write down what becomes durable and what is receipted.

    The operating system has a line before anything follows from it.
    """
    account = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    put, receipt = Outbox.put, Session._receipt

    def new_put(
        outbox: Outbox, seq: int, envelope: bytes | wire.InPlace, *more: Any, **options: Any
    ) -> None:
        if outbox._key[1] != "trial":  # which a push's delay is measured with
            payload = envelope if isinstance(envelope, bytes) else envelope.whole()
            os.write(account, f"put {seq} {hashlib.sha256(payload).hexdigest()}\n".encode())
        put(outbox, seq, envelope, *more, **options)

    def new_receipt(session: Session, seq: int, answer: pb.Receipt) -> None:
        pending = session.outbox.oldest()
        # One that the run's end overtook is given up, and answered DUPLICATE if it comes after the
        # edge's last account.
        if pending is not None and seq == pending[0]:
            os.write(account, f"receipt {seq} {pb.Receipt.Status.Name(answer.status)}\n".encode())
        receipt(session, seq, answer)

    for kind, name, replacement in ((Outbox, "put", new_put), (Session, "_receipt", new_receipt)):
        setattr(kind, name, replacement)


def start(order: dict[str, Any]) -> int:
    """Fork an edge or an aggregator; its pid."""

    def work() -> None:
        to_stderr("info")
        if order["kind"] == "aggregator":
            aggregator_main.main(read_settings(AggregatorSettings, **order["start"]))
            return
        Faults(order["seed"]).install()
        keep_account(order["account"])
        edge_main.main(read_settings(EdgeSettings, **order["start"]))

    return forked(order["log"], work)


if __name__ == "__main__":
    serve(start)
