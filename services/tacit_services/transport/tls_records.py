"""The records of a TLS connection in one direction, counted without opening them.

RFC 8446, section 5.1: a record has a header of 5 bytes, in the clear: type, version, length.
"""

from __future__ import annotations

_HEADER = 5
_APPLICATION_DATA = 23  # in TLS 1.3 the client's last words of the handshake have it, too


class TlsRecords:
    """Bytes of a TLS client, as they come, in pieces of any length.

    protected: whether a whole record has come that only a client with the connection's keys can
    have made; if it was made up, the server ends the connection.
    """

    def __init__(self) -> None:
        self.protected = False
        self._header = b""
        self._left = 0  # bytes of the record that is being read

    def feed(self, data: bytes | memoryview) -> None:
        """Take in what comes next. Nothing more is looked at once `protected` is true."""
        at = 0
        while at < len(data) and not self.protected:
            if len(self._header) < _HEADER:
                piece = bytes(data[at : at + _HEADER - len(self._header)])
                self._header += piece
                at += len(piece)
                if len(self._header) == _HEADER:
                    self._left = int.from_bytes(self._header[3:], "big")
            taken = min(self._left, len(data) - at)
            at += taken
            self._left -= taken
            if len(self._header) == _HEADER and not self._left:
                self.protected = self._header[0] == _APPLICATION_DATA
                self._header = b""
