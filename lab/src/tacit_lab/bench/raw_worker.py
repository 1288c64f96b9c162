"""What paho alone carries, as child processes: `python -m tacit_lab.bench.raw_worker KIND JSON`."""

from __future__ import annotations

import threading
import time
from typing import Any

from tacit_services.transport.mqtt import Connection, Inbound

from tacit_lab.bench.child import answer, begin


def publish(options: dict[str, Any]) -> dict[str, Any]:
    """Publish `size` bytes at QoS 1 by paho's own window of 16, as fast as it goes."""
    payload = bytes(options["size"])
    connection = Connection(options["broker"], f"raw-{options['number']}", [], lambda inbound: None)
    begin(connection)
    client = connection._client
    outstanding = threading.Semaphore(32)
    client.on_publish = lambda *_: outstanding.release()
    for _ in range(options["count"]):
        outstanding.acquire()
        client.publish("bench/raw", payload, qos=1)
    for _ in range(32):
        outstanding.acquire()
    connection.stop()
    return {}


def cycle(options: dict[str, Any]) -> dict[str, Any]:
    """Measure the seconds of `size` bytes there and back, in payloads of `chunk`, `count` times.

    One that `echoes` sends as many back once it has all.
    """
    size = options["size"]
    chunk = options["chunk"]
    mine = int(options["echoes"])
    payloads = [bytes(min(chunk, size - start)) for start in range(0, size, chunk)]
    received = 0
    complete = threading.Semaphore(0)
    times = []

    def on_message(inbound: Inbound) -> None:
        nonlocal received
        inbound.done()
        received += len(inbound.payload)
        if received == size:
            received = 0
            complete.release()

    topic = "bench/cycle/{}".format
    connection = Connection(
        options["broker"], topic(mine).replace("/", "-"), [topic(mine)], on_message
    )
    begin(connection)
    for _ in range(options["count"]):
        began = time.perf_counter()
        if mine:
            complete.acquire()
        for payload in payloads:
            connection.publish(topic(1 - mine), payload)
        if not mine:
            complete.acquire()
        times.append(time.perf_counter() - began)
    connection.stop()
    return {"seconds": times}


def receive(options: dict[str, Any]) -> dict[str, Any]:
    """Count and acknowledge `count` messages; the rate from the first to the last.

    Publishers that are faster fill the broker's queue, and what does not fit is dropped: the end is
    then a quiet time.
    """
    finished = threading.Event()
    times = [0.0, 0.0]
    received = 0

    def on_message(inbound: Inbound) -> None:
        nonlocal received
        times[received > 0] = time.perf_counter()
        received += 1
        inbound.done()
        if received >= options["count"]:
            finished.set()

    connection = Connection(options["broker"], "raw-receiver", ["bench/raw"], on_message)
    begin(connection)
    times[1] = time.perf_counter()
    while not finished.wait(2.0) and time.perf_counter() - times[1] < 10.0:
        pass
    connection.stop()
    return {"rate": (received - 1) / (times[1] - times[0])}


if __name__ == "__main__":
    answer({"publish": publish, "receive": receive, "cycle": cycle})
