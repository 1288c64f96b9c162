"""A broker for machines without mosquitto: amqtt, as a child process of `tacit run`.

It speaks MQTT 3.1.1 and is about ten times slower.
"""

from __future__ import annotations

import asyncio
import signal
import sys

from amqtt.broker import Broker


async def serve(address: str) -> None:
    """Serve on `address` (HOST:PORT) until SIGTERM or SIGINT."""
    settings = {
        "listeners": {"default": {"type": "tcp", "bind": address, "max_connections": 1000}},
        "plugins": {"amqtt.plugins.authentication.AnonymousAuthPlugin": {"allow_anonymous": True}},
    }
    # Made within the loop, which it takes for its own.
    await served(Broker(settings))


async def served(broker: Broker) -> None:
    """Serve until SIGTERM or SIGINT."""
    stop = asyncio.Event()
    for name in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(name, stop.set)
    await broker.start()
    await stop.wait()
    await broker.shutdown()


if __name__ == "__main__":
    asyncio.run(serve(sys.argv[1]))
