"""The MQTT topics of protocol v1, `tacit/v1/{run}/…`, and whose message a payload is part of.

Names are checked to hold no wildcard.
"""

from __future__ import annotations

import re
import struct

from tacit.errors import ConfigError, WireError

NUMBER_MAGIC = b"TCTN"
_NUMBER = struct.Struct("<4sQ")  # magic, the number of the message
NUMBER_HEADER = _NUMBER.size
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_name(value: str) -> bool:
    """Check whether `value` can be the name of an edge or a run."""
    return _NAME.fullmatch(value) is not None


def checked_name(field: str, value: str) -> str:
    """Return `value` if it can be part of a topic and of a file name.

    Raises ConfigError naming `field` otherwise.
    """
    if not is_name(value):
        raise ConfigError(f"{field}={value!r}: expected 1 to 64 letters, digits, '.', '_' or '-'")
    return value


def model(run: str) -> str:
    """Return the topic of the run's retained announcement: version, state, epoch."""
    return f"tacit/v1/{run}/model"


def up(run: str, edge: str, seq: int, part: int) -> str:
    """Return the topic of one part of an edge's message number `seq`."""
    return f"tacit/v1/{run}/up/{edge}/{seq}/{part}"


def up_numbered(run: str, edge: str) -> str:
    """Return the one topic of an edge whose payloads carry their own number."""
    return up(run, edge, 0, 0)


def up_all(run: str) -> str:
    """Return the aggregator's subscription: all parts of all edges."""
    return f"tacit/v1/{run}/up/+/+/+"


def up_of(run: str, edge: str) -> str:
    """Return the aggregator's subscription to one edge, where it does not want all."""
    return f"tacit/v1/{run}/up/{edge}/+/+"


def down(run: str, edge: str, kind: str, part: int = 0) -> str:
    """Return the topic from server to edge; kind is `model`, `receipt` or `control`."""
    return f"tacit/v1/{run}/down/{edge}/{kind}/{part}"


def down_all(run: str, edge: str) -> str:
    """Return the topic filter that an edge subscribes to."""
    return f"tacit/v1/{run}/down/{edge}/#"


def presence(run: str, edge: str) -> str:
    """Return the retained topic of an edge's presence.

    online, retired or left, said by the edge; offline, said by the broker (the edge's will).
    """
    return f"tacit/v1/{run}/presence/{edge}"


def presence_all(run: str) -> str:
    """Return the subscription to the presence of every edge."""
    return f"tacit/v1/{run}/presence/+"


def steps(run: str, edge: str) -> str:
    """Return the retained topic of how many steps a peer has taken, published by itself."""
    return f"tacit/v1/{run}/steps/{edge}"


def steps_all(run: str) -> str:
    """Return the subscription to the steps of every peer."""
    return f"tacit/v1/{run}/steps/+"


def peer(run: str, to: str, sender: str, number: int, part: int) -> str:
    """Return the topic of one part of a peer's message to another.

    number: the sender's own, new for every copy.
    """
    return f"tacit/v1/{run}/peer/{to}/from/{sender}/{number}/{part}"


def peer_numbered(run: str, to: str, sender: str) -> str:
    """Return the one topic from one peer to another, of payloads that carry their own number."""
    return peer(run, to, sender, 0, 0)


def peer_all(run: str, to: str) -> str:
    """Return a peer's subscription."""
    return f"tacit/v1/{run}/peer/{to}/from/#"


def parse_peer(topic: str) -> tuple[str, str, int, int]:
    """Return (to, from, number, part) of a `peer` topic; WireError("topic") otherwise."""
    levels = topic.split("/")
    if len(levels) != 9 or levels[3] != "peer" or levels[5] != "from":
        raise WireError("topic", topic[:120])
    names = levels[4], levels[6]
    if not all(_NAME.fullmatch(name) for name in names):
        raise WireError("topic", topic[:120])
    if not all(re.fullmatch(r"[0-9]{1,19}", level) for level in levels[7:]):
        raise WireError("topic", topic[:120])
    return names[0], names[1], int(levels[7]), int(levels[8])


def health() -> str:
    """Return the topic that a broker's health check asks for; nothing is published there."""
    return "tacit/v1/health"


def everything() -> str:
    """Return the topic filter of all messages of every run, to measure or record them."""
    return "tacit/v1/#"


def parse_up(topic: str) -> tuple[str, int, int]:
    """Return (edge, seq, part) of an `up` topic; WireError("topic") otherwise."""
    levels = topic.split("/")
    if len(levels) != 7 or levels[3] != "up" or not _NAME.fullmatch(levels[4]):
        raise WireError("topic", topic[:120])
    if not all(re.fullmatch(r"[0-9]{1,15}", level) for level in levels[5:]):
        raise WireError("topic", topic[:120])
    return levels[4], int(levels[5]), int(levels[6])


def number_front(number: int) -> bytes:
    """Return the bytes in front of a payload of message `number`.

    So all of a sender's messages have one topic, and a broker can be made to hold its retained
    messages to one.
    """
    return _NUMBER.pack(NUMBER_MAGIC, number)


def numbered(number: int, payload: bytes) -> bytes:
    """Return `payload`, with the number of its message in front."""
    return number_front(number) + payload


def read_numbered(number: int, payload: bytes) -> tuple[int, bytes | memoryview]:
    """Return the number of a message, and its payload; without a number, its topic's `number`.

    No byte of the payload is copied.
    """
    if payload[:4] != NUMBER_MAGIC or len(payload) < _NUMBER.size:
        return number, payload
    return int(_NUMBER.unpack_from(payload)[1]), memoryview(payload)[_NUMBER.size :]


def sender(topic: str, payload: bytes) -> tuple[str, int, bytes | memoryview]:
    """Return (edge, number of its message, part of it) of what came under an `up` topic.

    Raises WireError("topic").
    """
    edge, number, _ = parse_up(topic)
    return edge, *read_numbered(number, payload)
