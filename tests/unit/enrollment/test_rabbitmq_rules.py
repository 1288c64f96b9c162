"""RabbitMQ's expressions let everybody say and hear what mosquitto's rules do."""

from __future__ import annotations

import json
import re

import pytest
from tacit_services.enrollment import acl, rabbitmq_rules

from tacit.protocol import topics

RUN = "ward.7"  # a dot is a level to RabbitMQ


def key(topic: str) -> str:
    """Return the routing key of a topic, as RabbitMQ's MQTT plugin makes it."""
    return topic.translate(str.maketrans("./+", "/.*"))


def rules(user: str, kind: str) -> str:
    """Return the expression of what this user may `write` or `read`."""
    content = json.loads(rabbitmq_rules.definitions([RUN], ["edge-0", "edge-1"], peers=False))
    (permission,) = [each for each in content["topic_permissions"] if each["user"] == user]
    return str(permission[kind])


@pytest.mark.parametrize("user", ["aggregator", "edge-0"])
def test_each_may_say_and_hear_what_is_its_own(user: str) -> None:
    for rights in acl.everybody([RUN], ["edge-0", "edge-1"], False):
        is_own = rights.name == user
        allowed = [bool(re.search(rules(user, "write"), key(topic))) for topic in rights.write]
        if is_own:
            assert all(allowed)
            assert all(re.search(rules(user, "read"), key(topic)) for topic in rights.read)
        elif rights.name.startswith("edge"):
            assert not any(allowed)


@pytest.mark.parametrize(
    ("user", "kind", "topic", "allowed"),
    [
        ("aggregator", "read", topics.up_of(RUN, "edge-1"), True),  # where it leaves others out
        ("aggregator", "read", topics.everything(), False),
        ("aggregator", "write", topics.down(RUN, "edge-1", "model", 17), True),
        ("edge-0", "read", topics.down_all(RUN, "edge-1"), False),
        ("edge-0", "read", topics.everything(), False),
        ("edge-0", "read", topics.down(RUN, "edge-0", "model"), False),  # not narrower either
        ("edge-0", "write", topics.up(RUN, "edge-0", 1, 0), False),
        ("edge-0", "write", topics.up_numbered("other", "edge-0"), False),
        ("edge-0", "write", topics.up_numbered("wardx7", "edge-0"), False),
        ("broker", "write", topics.health(), False),
    ],
)
def test_nothing_else_is_granted(user: str, kind: str, topic: str, allowed: bool) -> None:
    assert bool(re.search(rules(user, kind), key(topic))) == allowed
