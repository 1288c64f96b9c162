"""TLS 1.3, read by the secrets that its client has written down (RFC 8446, sections 5 and 7.3)."""

from __future__ import annotations

import re
from collections.abc import Iterator

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA384
from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

_HANDSHAKE, _APPLICATION = 22, 23
_KEY_UPDATE = 24
_LINE = re.compile(r"CLIENT_(HANDSHAKE_TRAFFIC_SECRET|TRAFFIC_SECRET_0) (\w{64}) (\w{96})")
_HEADER = 5
_RANDOM = slice(_HEADER + 4 + 2, _HEADER + 4 + 2 + 32)  # in a record with a ClientHello
_TUNNEL = b"\r\n\r\n"  # at the end of what a proxy is asked


class _Cipher:
    """The keys of one side, at one stage of a connection: TLS_AES_256_GCM_SHA384."""

    def __init__(self, secret: bytes) -> None:
        self._key = AESGCM(_expanded(secret, b"key", 32))
        self._nonce = int.from_bytes(_expanded(secret, b"iv", 12), "big")
        self._number = 0

    def opened(self, record: bytes) -> tuple[int, bytes]:
        """Return the kind and content of the next record. Raises InvalidTag for another's."""
        nonce = (self._nonce ^ self._number).to_bytes(12, "big")
        inner = self._key.decrypt(nonce, record[_HEADER:], record[:_HEADER]).rstrip(b"\0")
        self._number += 1
        return inner[-1], inner[:-1]


class RecordReader:
    """Reads what clients said, by the lines of a key log."""

    def __init__(self, key_log: str) -> None:
        self._secrets: dict[tuple[str, str], bytes] = {
            (stage, random): bytes.fromhex(secret)
            for stage, random, secret in _LINE.findall(key_log)
        }

    def said(self, data: bytes) -> Iterator[tuple[int, bytes]]:
        """Yield the content of each record with application data, and where the record ends.

        data: all that a client sent, from its first byte, through a proxy's tunnel too; it may end
        anywhere. Raises AssertionError for what is no TLS 1.3, or whose secrets nobody wrote down.
        """
        records = _records(data)
        hello = next(records, None)
        if hello is None:
            return
        assert hello[1][0] == _HANDSHAKE, f"not TLS: {data[:40]!r}"
        random = hello[1][_RANDOM].hex()
        later = [pair for pair in records if pair[1][0] == _APPLICATION]
        if not later:  # it ended before it had a secret
            return
        before = _Cipher(self._secrets["HANDSHAKE_TRAFFIC_SECRET", random])
        after = None
        for end, record in later:
            if after is None:
                try:
                    before.opened(record)
                    continue
                except InvalidTag:
                    after = _Cipher(self._secrets["TRAFFIC_SECRET_0", random])
            kind, content = after.opened(record)
            assert kind != _HANDSHAKE or content[0] != _KEY_UPDATE, "a key that changes"
            if kind == _APPLICATION:
                yield end, content


def _records(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield each whole record, and where it ends."""
    at = data.index(_TUNNEL) + len(_TUNNEL) if data.startswith(b"CONNECT ") else 0
    while len(data) >= at + _HEADER:
        end = at + _HEADER + int.from_bytes(data[at + 3 : at + _HEADER], "big")
        if end > len(data):
            return
        yield end, data[at:end]
        at = end


def _expanded(secret: bytes, label: bytes, length: int) -> bytes:
    full = b"tls13 " + label
    info = length.to_bytes(2, "big") + bytes([len(full)]) + full + b"\0"
    return HKDFExpand(SHA384(), length, info).derive(secret)
