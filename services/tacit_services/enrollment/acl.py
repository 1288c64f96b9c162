"""The broker's access control list for a few runs, in the two forms that mosquitto reads.

It is made for the runs' names and their edges, name by name. So a certificate of another name can
publish nothing. An edge has a fixed, short list of topics to write. The broker therefore retains
one message a topic of it, for all that it may publish. A wildcard for the run would give that up.

The rules hold for the runs that a federation is to have: a broker that has read them needs no
restart for the next one (`federation`).

`plugin` is for mosquitto's dynamic security, which also refuses subscriptions: an edge has a fixed,
short list of those, too. `acl` is for `acl_file`, which grants every subscription, and so leaves an
edge as much of the broker's memory as it takes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tacit.protocol import topics

AGGREGATOR = "aggregator"
BROKER = "broker"  # its certificate's name, with which its health check asks it
# What nobody's rules name is refused; to give a subscription up takes no memory.
OTHERWISE = {
    "publishClientSend": False,
    "publishClientReceive": False,
    "subscribe": False,
    "unsubscribe": True,
}


@dataclass(frozen=True)
class Rights:
    """The topics that one name may write and read; `parts`: it may also ask for parts of these.

    asks: the parts that it may ask for, where they are few.
    """

    name: str
    read: Sequence[str]
    write: Sequence[str] = ()
    parts: bool = False
    asks: Sequence[str] = ()


def federation(first: str, count: int) -> list[str]:
    """Return the names of `count` runs of one federation: first, first-2, first-3 and so on.

    >>> federation("trial", 3)
    ['trial', 'trial-2', 'trial-3']
    """
    return [first, *(f"{first}-{number}" for number in range(2, count + 1))]


def acl(runs: Sequence[str], edges: Sequence[str], *, peers: bool) -> str:
    """Return the text of mosquitto's `acl_file` for `runs` with these `edges`.

    peers: whether they talk to one another.
    """
    heading = f"Run {', '.join(runs)}, {len(edges)} edges"
    return _acl_file(heading, everybody(runs, edges, peers))


def acl_of_federation(runs: Mapping[str, Sequence[str]]) -> str:
    """Return the text of `acl_file` for a federation: of each run, the members that have consented.

    Each run's aggregator has a name of its own.
    """
    users = [Rights(BROKER, [topics.health()])]
    for run, members in runs.items():
        users.append(aggregator_rights([run], aggregator_name(run)))
        users += [edge_rights([run], member) for member in members]
    return _acl_file(f"A federation of {len(runs)} runs", users)


def _acl_file(heading: str, users: Iterable[Rights]) -> str:
    lines = [f"# {heading}. Made by tacit pki: a change here is lost."]
    for user in users:
        lines.append(f"\nuser {user.name}")
        lines += [f"topic read {topic}" for topic in user.read]
        lines += [f"topic write {topic}" for topic in user.write]
    return "\n".join(lines) + "\n"


def plugin(runs: Sequence[str], edges: Sequence[str], *, peers: bool) -> str:
    """Return the same rules as the configuration of mosquitto's plugin for dynamic security.

    A client is its certificate's name; none has a password, and nobody may change the rules.
    """
    users = list(everybody(runs, edges, peers))
    content = {
        "defaultACLAccess": OTHERWISE,
        "clients": [{"username": user.name, "roles": [{"rolename": user.name}]} for user in users],
        "groups": [],
        "roles": [{"rolename": user.name, "acls": plugin_rules(user)} for user in users],
    }
    return json.dumps(content, indent=0) + "\n"


def plugin_rules(user: Rights) -> list[dict[str, object]]:
    """Return the rights as the plugin's list of rules."""
    # Literally: a pattern would also grant what is narrower, with a name as long as one likes.
    if user.parts:
        subscribe = "subscribePattern"
    else:
        subscribe = "subscribeLiteral"
    kinds = (
        ("publishClientSend", user.write),
        ("publishClientReceive", user.read),
        (subscribe, [*user.read, *user.asks]),
    )
    return [
        {"acltype": kind, "topic": name, "allow": True} for kind, names in kinds for name in names
    ]


def aggregator_name(run: str) -> str:
    """Return the name, in its certificate, of the aggregator of this run of a federation."""
    return f"{AGGREGATOR}-{run}"


def aggregator_rights(runs: Sequence[str], name: str = AGGREGATOR) -> Rights:
    """Return the rights of the aggregator of `runs`."""
    # The aggregator leaves out who floods: it asks for the others by their names.
    read = [topic for run in runs for topic in _read_topics(run)]
    written = [topic for run in runs for topic in _written_topics(run)]
    return Rights(name, read, written, parts=True)


def edge_rights(runs: Sequence[str], edge: str, peers: Sequence[str] = ()) -> Rights:
    """Return the rights of an edge in `runs`; peers: all edges, where they talk to one another."""
    heard = []
    written = []
    asked: list[str] = []
    for run in runs:
        heard += [topics.down_all(run, edge), topics.model(run)]
        written += [topics.up_numbered(run, edge), topics.presence(run, edge)]
        if peers:
            heard += _heard_of_peers(run, edge)
            written += _written_by_peers(run, edge, peers)
            # A peer leaves out who floods, as the aggregator does.
            asked += _others(run, edge, peers)
    return Rights(edge, heard, written, asks=asked)


def everybody(runs: Sequence[str], edges: Sequence[str], peers: bool) -> Iterator[Rights]:
    """Yield the rights of everybody in `runs`: the aggregator, the broker itself, each edge.

    peers: whether edges talk to one another.
    """
    yield aggregator_rights(runs)
    yield Rights(BROKER, [topics.health()])
    for edge in edges:
        yield edge_rights(runs, edge, edges if peers else ())


def _read_topics(run: str) -> list[str]:
    return [topics.up_all(run), topics.presence_all(run)]


def _written_topics(run: str) -> list[str]:
    return [topics.down(run, "+", "+").removesuffix("0") + "+", topics.model(run)]


def _heard_of_peers(run: str, edge: str) -> list[str]:
    # Who is there, and how far: peers have no server that would tell them.
    return [topics.peer_all(run, edge), topics.presence_all(run), topics.steps_all(run)]


def _others(run: str, edge: str, peers: Iterable[str]) -> Iterator[str]:
    for other in peers:
        if other != edge:
            yield topics.peer_numbered(run, edge, other)
            yield topics.presence(run, other)
            yield topics.steps(run, other)


def _written_by_peers(run: str, edge: str, peers: Iterable[str]) -> list[str]:
    others = [other for other in peers if other != edge]
    return [topics.steps(run, edge), *(topics.peer_numbered(run, to, edge) for to in others)]
