"""A bad network: a TCP proxy that delays, stalls, goes dark and cuts, and counts what passes.

`tc netem` needs privileges and would slow down everything else on the machine; this one is between
two ports.
"""

from __future__ import annotations

import asyncio
import random
import threading
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from typing import Any, TypeVar

from tests.helpers.servers import HOST, PATIENCE, free_port

SEGMENT = 1 << 16  # bytes that are delayed, or lost, together
T = TypeVar("T")


class Network:
    """Everything between clients (who connect to `address`) and a server at `target`.

    `delay`: seconds that every byte takes, each way. `loss`: the share of segments that have to be
    sent again, which TCP does one round trip later while everything behind waits. `rate`: bytes a
    second, each way, of all connections together; 0: no limit. `up`, `down`: bytes that have
    passed.
    """

    def __init__(
        self,
        target: str,
        *,
        delay: float = 0.0,
        loss: float = 0.0,
        rate: float = 0.0,
        seed: int = 1,
    ) -> None:
        host, _, port = target.rpartition(":")
        self._target, self._delay, self._loss = (host, int(port)), delay, loss
        self.rate = rate
        self._free_at = {"up": 0.0, "down": 0.0}
        self._random = random.Random(seed)
        self.address = f"{HOST}:{free_port()}"
        self.up = self.down = self.cuts = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._light: asyncio.Event  # not set: dark
        self._watches: list[tuple[Callable[[Network], bool], Callable[[], None]]] = []
        self._server: asyncio.Server

    def start(self) -> None:
        """Listen."""
        self._thread.start()
        self._do(self._listen()).result(10.0)

    def stop(self) -> None:
        """Cut everything and end."""
        self._do(self._close()).result(10.0)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(PATIENCE)
        self._loop.close()

    def blackout(self, seconds: float, *, cut: bool = False) -> None:
        """Let nothing pass for so long, beginning now.

        With `cut`, the connections of today do not outlive it.
        """
        self._do(self._dark(seconds, cut))

    def go_dark(self) -> None:
        """Let nothing pass until `come_back`; neither side is told."""
        self._do(self._darken()).result(10.0)

    def come_back(self, *, cut: bool) -> None:
        """Let bytes pass again. With `cut`, the connections from before do not outlive it."""
        self._do(self._lighten(cut)).result(10.0)

    def when(self, condition: Callable[[Network], bool], then: Callable[[], None]) -> None:
        """Call `then` (in the network's thread) as soon as the condition holds, which every
        segment may change.
        """
        self._watches.append((condition, then))

    # -- in the loop's thread ----------------------------------------------------------------------

    def _do(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    async def _listen(self) -> None:
        self._light = asyncio.Event()
        self._light.set()
        self._server = await asyncio.start_server(
            self._serve, HOST, int(self.address.rpartition(":")[2])
        )

    async def _close(self) -> None:
        self._server.close()
        self._cut()
        self._light.set()
        await asyncio.gather(
            *(asyncio.all_tasks() - {asyncio.current_task()}), return_exceptions=True
        )

    def _cut(self) -> None:
        for writer in self._writers:
            writer.transport.abort()
        self.cuts += bool(self._writers)
        self._writers.clear()

    async def _dark(self, seconds: float, cut: bool) -> None:
        self._light.clear()
        if cut:
            self._cut()
        await asyncio.sleep(seconds)
        self._light.set()

    async def _darken(self) -> None:
        self._light.clear()

    async def _lighten(self, cut: bool) -> None:
        if cut:
            self._cut()
        self._light.set()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await self._light.wait()
        try:
            far_reader, far_writer = await asyncio.open_connection(*self._target)
        except OSError:
            writer.transport.abort()
            return
        both = {writer, far_writer}
        self._writers |= both
        await asyncio.gather(
            self._pump(reader, far_writer, "up"), self._pump(far_reader, writer, "down")
        )
        self._writers -= both

    def _count(self, way: str, size: int) -> None:
        if way == "up":
            self.up += size
        else:
            self.down += size

    async def _turn(self, way: str, size: int) -> None:
        """Wait until this way has carried so many bytes more at the link's rate."""
        if self.rate:
            free_at = max(self._loop.time(), self._free_at[way]) + size / self.rate
            self._free_at[way] = free_at
            await asyncio.sleep(free_at - self._loop.time())

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, way: str
    ) -> None:
        """Forward one direction: what is read now is written `delay` later, in order.

        A link with a rate takes no more than two segments ahead, so that the sender feels it.
        """
        under_way: asyncio.Queue[tuple[float, bytes]] = asyncio.Queue(2 if self.rate else 0)
        forward = asyncio.ensure_future(self._forward(under_way, writer, way))
        with suppress(OSError):
            while data := await reader.read(SEGMENT):
                await under_way.put((self._loop.time() + self._delay, data))
        await under_way.put((0.0, b""))
        await forward

    async def _forward(
        self, under_way: asyncio.Queue[tuple[float, bytes]], writer: asyncio.StreamWriter, way: str
    ) -> None:
        broken = False  # then what is still read goes nowhere
        while (item := await under_way.get())[1]:
            if broken:
                continue
            due, data = item
            lost = self._random.random() < self._loss
            await asyncio.sleep(
                max(0.0, due - self._loop.time()) + (2 * self._delay if lost else 0.0)
            )
            await self._turn(way, len(data))
            await self._light.wait()
            try:
                writer.write(data)
                await writer.drain()
            except OSError:
                broken = True
                continue
            self._count(way, len(data))
            for watch in [watch for watch in self._watches if watch[0](self)]:
                self._watches.remove(watch)
                watch[1]()
        writer.close()


@contextmanager
def network(
    target: str, *, delay: float = 0.0, loss: float = 0.0, rate: float = 0.0, seed: int = 1
) -> Iterator[Network]:
    """Yield a running network."""
    proxy = Network(target, delay=delay, loss=loss, rate=rate, seed=seed)
    proxy.start()
    try:
        yield proxy
    finally:
        proxy.stop()
