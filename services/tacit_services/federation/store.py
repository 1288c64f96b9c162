"""The store of a federation: Redis or SQLite in FOLDER/store, one server at a time."""

from __future__ import annotations

from pathlib import Path

from tacit_services.children.processes import Child, StartedServer


def start_federation_store(folder: Path, children: list[Child]) -> StartedServer:
    """Start the store whose files are in `folder`, FOLDER/store; returns its URL.

    Durable: what is confirmed is on disk. A server of before, whose host was killed, is waited for.
    Raises ServiceError where it does not end, or the new one does not start.
    """
    raise NotImplementedError
