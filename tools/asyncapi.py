"""`python -m tools.asyncapi`: the MQTT interface as an AsyncAPI 3 document, docs/asyncapi.yaml.

Addresses come from `tacit.protocol.topics`, message kinds and their words from wire.proto. What
only an order of messages says stays in docs/protocol.md.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import yaml

from tacit.protocol import topics
from tacit.protocol._pb import wire_pb2

ROOT = Path(__file__).resolve().parent.parent
DOCUMENT = ROOT / "docs" / "asyncapi.yaml"
_PROTO = ROOT / "protos" / "tacit" / "v1" / "wire.proto"
_COMMENT = re.compile(r"((?:^//[^\n]*\n)*)^message (\w+) \{", re.M)
_PARAMETER = re.compile(r"\{(\w+)\}")
_PARAMETERS = {
    "run": "The name of the run: 1 to 64 of A-Z a-z 0-9 . _ -, a letter or digit first.",
    "edge": "The name of the edge, peer or party, of the same form.",
    "to": "The peer that reads.",
    "sender": "The peer that publishes.",
    "number": "The number of the message, of the sender's own.",
    "part": "The part of the message, from 0.",
}
# Kinds of a Meta that stand in the journal alone.
_JOURNALLED = ("deadline", "release")
_PRESENCE = {
    "name": "presence",
    "title": "Presence",
    "contentType": "text/plain",
    "payload": {
        "type": "string",
        "pattern": "^(online|refusing|retired|left|offline|refuses .+)$",
        "description": "refuses KEY: an edge whose policy forbids the run by this key",
    },
}
_STEPS = {
    "name": "steps",
    "title": "Steps",
    "contentType": "text/plain",
    "payload": {"type": "string", "pattern": "^[0-9]+$"},
}


@dataclass(frozen=True)
class Channel:
    """A topic, and what an edge does there. words: of the function of `topics` that has it.

    messages: kinds of Meta, or the two texts. action: of an edge, peer or party; None: nothing of
    this version goes there.
    """

    name: str
    address: str
    words: str
    messages: Sequence[str]
    action: Literal["send", "receive"] | None = "send"
    retained: bool = False


def channels() -> Iterator[Channel]:
    """Yield every topic to which anybody may publish."""
    up = ("hello", "update", "retired", "want")
    gossip = ("proposal", "exchanged", "share", "missing")
    down = ("model", "roster", "feedback", "request")
    run, edge, to, sender, number, part = (f"{{{name}}}" for name in _PARAMETERS)
    yield Channel(
        "announcement", topics.model(run), _words(topics.model), ["announcement"], "receive", True
    )
    yield Channel("up", topics.up_numbered(run, edge), _words(topics.up_numbered), up)
    yield Channel("upOld", topics.up(run, edge, number, part), _words(topics.up), up, None)  # type: ignore[arg-type]
    for kind, messages in (("model", down), ("receipt", ["receipt"]), ("control", ["halt"])):
        address = topics.down(run, edge, kind, part if kind == "model" else 0)  # type: ignore[arg-type]
        yield Channel(f"down{kind.title()}", address, _words(topics.down), messages, "receive")
    yield Channel(
        "presence", topics.presence(run, edge), _words(topics.presence), ["presence"], retained=True
    )
    yield Channel("steps", topics.steps(run, edge), _words(topics.steps), ["steps"], retained=True)
    words = _words(topics.peer_numbered)
    yield Channel("peer", topics.peer_numbered(run, to, sender), words, gossip)
    address = topics.peer(run, to, sender, number, part)  # type: ignore[arg-type]
    yield Channel("peerOld", address, _words(topics.peer), gossip, None)
    yield Channel("health", topics.health(), _words(topics.health), [], None)


def document() -> dict[str, Any]:
    """Return the document."""
    each = list(channels())
    return {
        "asyncapi": "3.0.0",
        "info": {
            "title": "tacit over MQTT",
            "version": "1",
            "description": "What an edge, peer or party sends and receives. Every field is in "
            "protos/tacit/v1/wire.proto; envelope, parts and order are in docs/protocol.md.",
            "license": {"name": "Apache-2.0"},
        },
        "defaultContentType": "application/octet-stream",
        "servers": {
            "broker": {
                "host": "{broker}",
                "protocol": "mqtt",
                "protocolVersion": "3.1.1",
                "description": "Any broker of MQTT 3.1.1, by TLS between machines.",
                "variables": {"broker": {"default": "127.0.0.1:1883"}},
            }
        },
        "channels": {channel.name: _channel(channel) for channel in each},
        "operations": {
            f"{channel.action}{channel.name[0].upper()}{channel.name[1:]}": _operation(channel)
            for channel in each
            if channel.action is not None
        },
        "components": {"messages": messages()},
    }


def messages() -> dict[str, Any]:
    """Return every message: kinds of Meta with the words of wire.proto, and two texts."""
    text = _PROTO.read_text(encoding="utf-8")
    comments = {name: comment for comment, name in _COMMENT.findall(text)}
    kinds = {}
    for field in wire_pb2.Meta.DESCRIPTOR.oneofs_by_name["kind"].fields:
        kind = field.message_type
        if field.name in _JOURNALLED or kind is None:
            continue
        words = " ".join(comments[kind.name].replace("//", "").split())
        kinds[field.name] = {
            "name": field.name,
            "title": kind.name,
            **({"summary": words} if words else {}),
            "payload": {
                "type": "string",
                "format": "binary",
                "description": "an envelope TCT1, whose Meta has this kind; or a part of it",
                "x-protobuf": kind.full_name,
            },
        }
    return kinds | {"presence": _PRESENCE, "steps": _STEPS}


def _channel(channel: Channel) -> dict[str, Any]:
    names = _PARAMETER.findall(channel.address)
    content: dict[str, Any] = {"address": channel.address, "description": channel.words}
    if names:
        content["parameters"] = {name: {"description": _PARAMETERS[name]} for name in names}
    if channel.messages:
        content["messages"] = {
            name: {"$ref": f"#/components/messages/{name}"} for name in channel.messages
        }
    return content


def _operation(channel: Channel) -> dict[str, Any]:
    return {
        "action": channel.action,
        "channel": {"$ref": f"#/channels/{channel.name}"},
        "bindings": {"mqtt": {"qos": 1, "retain": channel.retained, "bindingVersion": "0.2.0"}},
    }


def _words(function: Any) -> str:
    """Return the words of a function of `topics` on its topic."""
    words = " ".join((inspect.getdoc(function) or "").split())
    words = words.removeprefix("Return ")
    return words[:1].upper() + words[1:]


def written() -> str:
    """Return the document as YAML."""
    head = "# Made by `python -m tools.asyncapi`.\n"
    return f"{head}{yaml.safe_dump(document(), sort_keys=False, allow_unicode=True, width=100)}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(), encoding="utf-8")
    sys.stdout.write(f"{DOCUMENT.relative_to(ROOT)}\n")
