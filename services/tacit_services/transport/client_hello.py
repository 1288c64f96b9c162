"""The first message of a TLS client, read without opening its connection.

RFC 8446, sections 4.1.2 and 5.1, and RFC 7301, section 3.1. Nothing but the list of application
protocols (ALPN) is looked at. What a ClientHello may hold besides is the server's business.
"""

from __future__ import annotations

MOST = 1 << 14  # bytes of a ClientHello with its records; real ones have 200 to 2,000
_HANDSHAKE = 22  # the type of a record
_CLIENT_HELLO = 1
_RECORD_HEADER = 5
_MESSAGE_HEADER = 4
_LARGEST_RECORD = 1 << 14
_ALPN = 16
_BEFORE_SESSION = 2 + 32  # version and random


class NotTlsError(ValueError):
    """What came does not begin as TLS does, or is longer than MOST."""


def protocols(data: bytes | bytearray) -> tuple[bytes, ...] | None:
    """Return the application protocols that a client offers, by the first bytes that it has sent.

    None: more bytes are needed, at most MOST in all. Empty: it offers none. Raises NotTlsError.
    """
    message = _message(data)
    if message is None:
        return None
    body = _Bytes(message[_MESSAGE_HEADER:])
    body.skip(_BEFORE_SESSION)
    body.block(1)  # session
    body.block(2)  # cipher suites
    body.block(1)  # compression methods
    if not body.left:  # before TLS 1.2 a client need not have extensions
        return ()
    extensions = _Bytes(body.block(2))
    while extensions.left:
        kind = extensions.number(2)
        content = extensions.block(2)
        if kind == _ALPN:
            return tuple(_names(content))
    return ()


def _names(content: bytes) -> list[bytes]:
    listed = _Bytes(_Bytes(content).block(2))
    names = []
    while listed.left:
        names.append(listed.block(1))
    return names


def _message(data: bytes | bytearray) -> bytes | None:
    """Return the ClientHello without its records' headers; None: it is not whole yet."""
    message = bytearray()
    at = 0
    while True:
        header = data[at : at + _RECORD_HEADER]
        # A stranger is told apart by its first bytes: none waits for a fifth.
        if header[:1] not in (b"", b"\x16") or header[1:2] not in (b"", b"\x03"):
            raise NotTlsError("not TLS")
        if len(header) < _RECORD_HEADER:
            _refuse_endless(data)
            return None
        size = int.from_bytes(header[3:], "big")
        if not 0 < size <= _LARGEST_RECORD:
            raise NotTlsError(f"a record of {size} bytes")
        message += data[at + _RECORD_HEADER : at + _RECORD_HEADER + size]
        if message and message[0] != _CLIENT_HELLO:
            raise NotTlsError("not a ClientHello")
        if len(message) >= _MESSAGE_HEADER:
            whole = _MESSAGE_HEADER + int.from_bytes(message[1:_MESSAGE_HEADER], "big")
            if whole > MOST:
                raise NotTlsError(f"a ClientHello of {whole} bytes")
            if len(message) >= whole:
                return bytes(message[:whole])
        if len(data) < at + _RECORD_HEADER + size:
            _refuse_endless(data)
            return None
        at += _RECORD_HEADER + size


def _refuse_endless(data: bytes | bytearray) -> None:
    if len(data) >= MOST:
        raise NotTlsError(f"no ClientHello within {MOST} bytes")


class _Bytes:
    """Bytes that are read from the front."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0

    @property
    def left(self) -> int:
        """The number of bytes that are not read."""
        return len(self._data) - self._at

    def skip(self, count: int) -> bytes:
        """Return the next `count` bytes. Raises NotTlsError where there are fewer."""
        if count > self.left:
            raise NotTlsError("a ClientHello that ends in the middle")
        self._at += count
        return self._data[self._at - count : self._at]

    def number(self, size: int) -> int:
        """Return the next `size` bytes as a number."""
        return int.from_bytes(self.skip(size), "big")

    def block(self, size: int) -> bytes:
        """Return the bytes behind a length of `size` bytes."""
        return self.skip(self.number(size))
