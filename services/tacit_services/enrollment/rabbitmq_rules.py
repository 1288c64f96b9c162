"""The rules of `acl` as definitions that RabbitMQ loads: users, and what each may say and hear.

A user is the name in a certificate, and has no password. RabbitMQ looks at a subscription's filter
and at a publication's topic by regular expressions; in both, its levels are separated by dots.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence

from tacit_services.enrollment import acl
from tacit_services.enrollment.acl import Rights

VHOST = "/"
EXCHANGE = "amq.topic"
_QUEUES = "mqtt-subscription-.*"  # one for each client, of its id, which nobody else can guess
_NOTHING = "^$"
_SWAPPED = str.maketrans("./+", "/.*")  # as RabbitMQ turns a topic into a routing key


def definitions(runs: Sequence[str], edges: Sequence[str], *, peers: bool) -> str:
    """Return the definitions file (`load_definitions`) for `runs` with these `edges`.

    peers: whether they talk to one another.
    """
    everybody = list(acl.everybody(runs, edges, peers))
    content = {
        "vhosts": [{"name": VHOST}],
        "users": [{"name": user.name, "password_hash": "", "tags": ""} for user in everybody],
        "permissions": [_of_queues(user) for user in everybody],
        "topic_permissions": [_of_topics(user) for user in everybody],
    }
    return json.dumps(content, indent=1) + "\n"


def _of_queues(user: Rights) -> dict[str, str]:
    reaches = f"^({re.escape(EXCHANGE)}|{_QUEUES})$"
    return {
        "user": user.name,
        "vhost": VHOST,
        "configure": f"^{_QUEUES}$",
        "write": reaches,
        "read": reaches,
    }


def _of_topics(user: Rights) -> dict[str, str]:
    heard = [*user.read, *user.asks]
    return {
        "user": user.name,
        "vhost": VHOST,
        "exchange": EXCHANGE,
        "write": _any(_pattern(topic) for topic in user.write),
        "read": _any(_pattern(topic) if user.parts else _literal(topic) for topic in heard),
    }


def _literal(topic: str) -> str:
    return re.escape(topic.translate(_SWAPPED))


def _pattern(topic: str) -> str:
    """Return the expression for a topic whose + stands for any name, or for + itself."""
    return _literal(topic).replace(re.escape("*"), "[^.]+")


def _any(expressions: Iterable[str]) -> str:
    joined = "|".join(expressions)
    return f"^({joined})$" if joined else _NOTHING
