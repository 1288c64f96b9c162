"""The MQTT topics of protocol v1: `tacit/v1/{run}/…`. Names are checked so that no wildcard can slip in."""

from __future__ import annotations

import re

from tacit.errors import ConfigError, WireError

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")


def is_name(value: str) -> bool:
    """Whether `value` can be the name of an edge or a run."""
    return _NAME.fullmatch(value) is not None


def checked_name(field: str, value: str) -> str:
    """`value` if it can be part of a topic and of a file name, else ConfigError naming `field`."""
    if not is_name(value):
        raise ConfigError(f"{field}={value!r}: expected 1 to 64 letters, digits, '.', '_' or '-'")
    return value


def model(run: str) -> str:
    """Retained announcement of the run: version, state, epoch."""
    return f"tacit/v1/{run}/model"


def up(run: str, edge: str, seq: int, part: int) -> str:
    """One chunk of an edge's message number `seq`."""
    return f"tacit/v1/{run}/up/{edge}/{seq}/{part}"


def up_all(run: str) -> str:
    """What the aggregator subscribes to."""
    return f"tacit/v1/{run}/up/+/+/+"


def up_of(run: str, edge: str) -> str:
    """What it subscribes to of one edge, where it does not want all."""
    return f"tacit/v1/{run}/up/{edge}/+/+"


def down(run: str, edge: str, kind: str, part: int = 0) -> str:
    """Server to edge: kind is `model`, `receipt` or `control`."""
    return f"tacit/v1/{run}/down/{edge}/{kind}/{part}"


def down_all(run: str, edge: str) -> str:
    """What an edge subscribes to."""
    return f"tacit/v1/{run}/down/{edge}/#"


def presence(run: str, edge: str) -> str:
    """Retained: online, retired, left (said by the edge) or offline (said by the broker, its will)."""
    return f"tacit/v1/{run}/presence/{edge}"


def presence_all(run: str) -> str:
    """Presence of every edge."""
    return f"tacit/v1/{run}/presence/+"


def peer(run: str, to: str, sender: str, number: int, part: int) -> str:
    """One chunk of a peer's message to another; `number` is the sender's own, new for every copy."""
    return f"tacit/v1/{run}/peer/{to}/from/{sender}/{number}/{part}"


def peer_all(run: str, to: str) -> str:
    """What a peer subscribes to."""
    return f"tacit/v1/{run}/peer/{to}/from/#"


def parse_peer(topic: str) -> tuple[str, str, int, int]:
    """(to, from, number, part) of a `peer` topic; WireError("topic") otherwise."""
    levels = topic.split("/")
    names = (
        [levels[4], levels[6]]
        if len(levels) == 9 and (levels[3], levels[5]) == ("peer", "from")
        else []
    )
    if not names or not all(_NAME.fullmatch(name) for name in names):
        raise WireError("topic", topic[:120])
    if not all(re.fullmatch(r"[0-9]{1,19}", level) for level in levels[7:]):
        raise WireError("topic", topic[:120])
    return names[0], names[1], int(levels[7]), int(levels[8])


def everything() -> str:
    """All of every run: for who measures or records."""
    return "tacit/v1/#"


def parse_up(topic: str) -> tuple[str, int, int]:
    """(edge, seq, part) of an `up` topic; WireError("topic") otherwise."""
    levels = topic.split("/")
    if len(levels) != 7 or levels[3] != "up" or not _NAME.fullmatch(levels[4]):
        raise WireError("topic", topic[:120])
    if not all(re.fullmatch(r"[0-9]{1,15}", level) for level in levels[5:]):
        raise WireError("topic", topic[:120])
    return levels[4], int(levels[5]), int(levels[6])
