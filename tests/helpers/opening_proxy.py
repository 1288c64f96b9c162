"""A proxy that takes TLS apart, as some organisations have them: each host gets its certificate."""

from __future__ import annotations

import socket
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from tacit_services.enrollment import certificates

from tests.helpers.servers import HOST, free_port


@contextmanager
def opening_proxy(folder: Path) -> Iterator[str]:
    """Yield the URL of a proxy that answers every CONNECT, and then speaks TLS itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*_certificate(folder))
    listener = socket.create_server((HOST, free_port()))
    threading.Thread(target=_serve, args=(listener, context), daemon=True).start()
    try:
        yield "http://{}:{}".format(*listener.getsockname())
    finally:
        listener.close()


def _certificate(folder: Path) -> tuple[Path, Path]:
    """Write a certificate for this machine, of an authority that nobody else knows."""
    authority_key, key = certificates.new_key(), certificates.new_key()
    authority = certificates.authority(authority_key, "Inspection")
    own = certificates.sign(authority, authority_key, "proxy", key.public_key(), 1, (HOST,))
    paths = folder / "proxy.crt", folder / "proxy.key"
    paths[0].write_bytes(certificates.pem(own))
    paths[1].write_bytes(certificates.key_pem(key))
    return paths


def _serve(listener: socket.socket, context: ssl.SSLContext) -> None:
    with suppress(OSError):
        while True:
            link, _ = listener.accept()
            with suppress(OSError), link:
                _answer(link, context)


def _answer(link: socket.socket, context: ssl.SSLContext) -> None:
    """Let a client through, read what it asks by HTTPS, and answer with something else."""
    while b"\r\n\r\n" not in link.recv(4096):
        pass
    link.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
    with context.wrap_socket(link, server_side=True) as opened:
        if opened.recv(4096):
            opened.sendall(b"HTTP/1.1 403 Forbidden\r\nContent-Length: 0\r\n\r\n")
