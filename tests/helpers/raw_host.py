"""A server by TLS that answers every request with bytes that a test chooses."""

from __future__ import annotations

import re
import socket
import ssl
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from tacit_services.enrollment import certificates

from tests.helpers.servers import HOST

Answer = Callable[[bytes], Iterable[bytes]]


@dataclass
class RawHost:
    """Where it is, and how many bytes it could send to its last client."""

    url: str
    sent: int = 0


def _request(link: ssl.SSLSocket) -> bytes:
    """Return a request, with its whole body: a socket closed before that takes the answer away."""
    request = b""
    while b"\r\n\r\n" not in request and (more := link.recv(1 << 16)):
        request += more
    head, _, body = request.partition(b"\r\n\r\n")
    length = re.search(rb"(?i)content-length: *(\d+)", head)
    missing = int(length[1]) - len(body) if length else 0
    while missing > 0 and (more := link.recv(missing)):
        request += more
        missing -= len(more)
    return request


@contextmanager
def raw_host(
    folder: Path,
    authority: x509.Certificate,
    key: certificates.Key,
    answer: Answer,
    names: tuple[str, ...] = (HOST,),
    spoil: Callable[[bytes], bytes] = bytes,
) -> Iterator[RawHost]:
    """Serve with a certificate of `authority`. answer: makes the pieces for a request's bytes.

    spoil: makes of the certificate (DER) what is shown.
    """
    server_key = certificates.new_key()
    certificate = certificates.sign(authority, key, "host", server_key.public_key(), 30, names)
    path = folder / "raw-host.pem"
    spoiled = ssl.DER_cert_to_PEM_cert(spoil(certificate.public_bytes(Encoding.DER)))
    path.write_bytes(spoiled.encode() + certificates.key_pem(server_key))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    listener = socket.create_server((HOST, 0))
    host = RawHost(f"https://{HOST}:{listener.getsockname()[1]}")

    def serve() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:  # closed: the test is over
                return
            try:
                with context.wrap_socket(client, server_side=True) as link:
                    host.sent = 0
                    for piece in answer(_request(link)):
                        link.sendall(piece)
                        host.sent += len(piece)
            except OSError:  # the client has gone
                continue

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    try:
        yield host
    finally:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
        thread.join(5.0)


def json_answer(content: bytes, *headers: str) -> Iterable[bytes]:
    """Return an answer of status 200."""
    lines = ["HTTP/1.1 200 OK", f"Content-Length: {len(content)}", "Connection: close", *headers]
    return ["\r\n".join(lines).encode() + b"\r\n\r\n" + content]
