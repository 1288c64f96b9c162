"""The broker's access control list for one run, as mosquitto's `acl_file`.

It is made for the run's name and its edges, name by name. So a certificate of another name says
nothing; and an edge has a fixed, short list of topics to write, so that what the broker retains of
it is one message a topic, whatever it publishes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from tacit.protocol import topics

AGGREGATOR = "aggregator"


def acl(run: str, edges: Sequence[str], *, peers: bool) -> str:
    """The file's text for `run` with these `edges`; peers: whether they talk to one another."""
    lines = [
        f"# Run {run}, {len(edges)} edges. Made by tacit pki: a change here is lost.",
        *_rules(AGGREGATOR, read=_heard(run), write=_said(run)),
    ]
    for edge in edges:
        lines += _rules(
            edge,
            read=[
                topics.down_all(run, edge),
                topics.model(run),
                *_heard_of_peers(run, edge, peers),
            ],
            write=[
                topics.up_numbered(run, edge),
                topics.presence(run, edge),
                *(_said_by_peers(run, edge, edges) if peers else ()),
            ],
        )
    return "\n".join(lines) + "\n"


def _rules(user: str, *, read: Iterable[str], write: Iterable[str]) -> Iterator[str]:
    yield f"\nuser {user}"
    yield from (f"topic read {topic}" for topic in read)
    yield from (f"topic write {topic}" for topic in write)


def _heard(run: str) -> list[str]:
    return [topics.up_all(run), topics.presence_all(run)]


def _said(run: str) -> list[str]:
    return [topics.down(run, "+", "+").removesuffix("0") + "+", topics.model(run)]


def _heard_of_peers(run: str, edge: str, peers: bool) -> list[str]:
    # Who is there, and how far: peers have no server that would tell them.
    everybody = [topics.presence_all(run), topics.steps_all(run)]
    return [topics.peer_all(run, edge), *everybody] if peers else []


def _said_by_peers(run: str, edge: str, peers: Iterable[str]) -> list[str]:
    others = [other for other in peers if other != edge]
    return [topics.steps(run, edge), *(topics.peer_numbered(run, to, edge) for to in others)]
