"""Forged bundles, made from a true one: a hundred by strangers, thirty by the host itself.

A stranger has no key of the run: neither the authority's nor an edge's. The host has the
authority's, and can sign whatever it likes; owners' anchors are what it cannot have made.
"""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from tacit_services.enrollment import certificates
from tacit_services.evidence import bundle, journal_chain, printed_page
from tacit_services.evidence.anchors import Anchors
from tacit_services.evidence.bundle_files import BundleFiles
from tacit_services.evidence.journal_chain import JournalChain
from tacit_services.evidence.own_authority import ThrowawayAuthority
from tacit_services.journal import journal_file

from tacit.exported.model_card import OF_PRIVACY, privacy_words
from tests.helpers.evidence import (
    PastRun,
    own_certificate,
    past_run,
    put,
    restated,
    signed_anew,
    verdict_of,
)

Change = Callable[[Path], None]
SUMMARY = "results/summary.json"


@dataclass(frozen=True, slots=True)
class Scene:
    """A run with its bundle, another run of the same federation, and a stranger's authority."""

    run: PastRun
    folder: Path
    other: PastRun
    others: Path
    stranger: ThrowawayAuthority
    key: certificates.Key  # the forger's own


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Scene:
    root = tmp_path_factory.mktemp("forgeries")
    run = past_run(root / "run", edges=3, updates=9)
    run.bundle(root / "bundle")
    other = past_run(root / "other", "other", authority=run.authority)
    other.bundle(root / "others")
    stranger = ThrowawayAuthority("clinic")
    return Scene(run, root / "bundle", other, root / "others", stranger, certificates.new_key())


# -- what is changed ---------------------------------------------------------------------------


def flipped(name: str, folder: Path) -> None:
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    put(folder, name, bytes(content))


def emptied(name: str, folder: Path) -> None:
    put(folder, name, b"")


def longer(name: str, folder: Path) -> None:
    put(folder, name, (folder / name).read_bytes() + b"\n")


def halved(name: str, folder: Path) -> None:
    content = (folder / name).read_bytes()
    put(folder, name, content[: len(content) // 2])


def left_out(name: str, folder: Path) -> None:
    (folder / name).unlink()


def exchanged(name: str, other: str, folder: Path) -> None:
    first, second = (folder / name).read_bytes(), (folder / other).read_bytes()
    put(folder, name, second)
    put(folder, other, first)


def of_another(name: str, others: Path, folder: Path) -> None:
    put(folder, name, (others / name).read_bytes())


def summary_with(folder: Path, **values: Any) -> None:
    content = json.loads((folder / SUMMARY).read_bytes())
    put(folder, SUMMARY, json.dumps(content | values).encode())


def states_less(edge: str, key: certificates.Key, folder: Path) -> None:
    restated(folder, edge, key, **{"privacy.epsilon": 0.1})


def smaller_epsilon(folder: Path, of: str = "") -> None:
    privacy = json.loads((folder / SUMMARY).read_bytes())["privacy"]
    target = privacy["edges"][of] if of else privacy
    target["epsilon_pld" if of else "epsilon"] = 0.1
    summary_with(folder, privacy=privacy)
    facts = json.loads((folder / "model/model.json").read_bytes())
    facts["privacy"] |= {key: privacy[key] for key in facts["privacy"]}
    put(folder, "model/model.json", json.dumps(facts).encode())


def results_with(change: Callable[[dict[str, Any]], None], folder: Path) -> None:
    """Change the privacy of results, model and card alike."""
    privacy = json.loads((folder / SUMMARY).read_bytes())["privacy"]
    before = json.loads(json.dumps(privacy))
    change(privacy)
    summary_with(folder, privacy=privacy)
    facts = json.loads((folder / "model/model.json").read_bytes())
    facts["privacy"] = {key: privacy[key] for key in OF_PRIVACY}
    put(folder, "model/model.json", json.dumps(facts).encode())
    carded(folder, before, privacy)


def carded(folder: Path, before: dict[str, Any], now: dict[str, Any]) -> None:
    """Let the card say another privacy than `before`."""
    card = (folder / "model/README.md").read_text(encoding="utf-8")
    assert privacy_words(before) in card
    changed = card.replace(privacy_words(before), privacy_words(now))
    put(folder, "model/README.md", changed.encode())


def nothing_charged(privacy: dict[str, Any], first: str, edge: str) -> None:
    privacy["edges"][edge] |= {"charged": {"count": 0, "head": first}, "epsilon_pld": 0.0}


def journal_of(folder: Path, entries: list[tuple[int, bytes]], run: PastRun) -> dict[str, Any]:
    """Write a journal of these messages; returns what bundle.json says of it."""
    (folder / bundle.JOURNAL).unlink()
    with journal_file.open_journal(run.journal) as file:
        begin = journal_file.JournalReader(file, "journal").header
    writer = journal_file.Writer(folder / bundle.JOURNAL)
    writer.open(begin)
    writer.append([(place, payload) for place, (_, payload) in enumerate(entries, 1)])
    writer.close()
    chain = journal_chain.chain_of(folder / bundle.JOURNAL)
    put(folder, bundle.CHAIN, chain.text().encode())
    return {"journal": stated(chain)}


def stated(chain: JournalChain) -> dict[str, Any]:
    return {
        "begins_after": chain.begins_after,
        "state": chain.state,
        "records": len(chain.entries),
        "head": chain.head(),
    }


def messages(run: PastRun) -> list[tuple[int, bytes]]:
    with journal_file.open_journal(run.journal) as file:
        return [(entry.position, entry.payload) for entry in journal_file.JournalReader(file, "j")]


def sender(payload: bytes) -> str:
    from tacit.protocol import wire

    return wire.decode(payload).meta.edge


# -- strangers ---------------------------------------------------------------------------------


def strangers(scene: Scene) -> Iterator[tuple[str, Change]]:
    """Yield what somebody without any key may do to a bundle."""
    names = BundleFiles(scene.folder).names
    for name in names:
        yield f"a byte of {name} is another", partial(flipped, name)
        yield f"{name} is empty", partial(emptied, name)
        yield f"{name} ends in the middle", partial(halved, name)
        yield f"{name} is longer", partial(longer, name)
        yield f"{name} is left out", partial(left_out, name)
    yield "a file more", lambda folder: put(folder, "results/more.txt", b"more")
    for name in (SUMMARY, "model/README.md", "statements/edge-0.json", bundle.NAME, bundle.CHAIN):
        yield f"{name} is another run's", partial(of_another, name, scene.others)
    pairs = [("statements/edge-0.json", "statements/edge-1.json"),
             ("certificates/edge-0.pem", "certificates/edge-1.pem"),
             ("certificates/authority.pem", "certificates/host.pem")]  # fmt: skip
    for name, other in pairs:
        yield f"{name} and {other} are exchanged", partial(exchanged, name, other)
    yield "a smaller ε", smaller_epsilon
    yield "a better accuracy", lambda f: summary_with(f, metrics={"accuracy": 0.99})
    for number in range(3):
        edge = f"edge-{number}"
        yield (f"{edge} states less", partial(states_less, edge, scene.key))


def with_an_authority_of_their_own(scene: Scene) -> Iterator[tuple[str, Change]]:
    """Yield what a stranger may do who signs everything anew, as an authority of the same name."""

    def all_anew(folder: Path, **changes: Any) -> None:
        for edge in scene.run.statements:
            key = certificates.new_key()
            own_certificate(folder, edge, key, scene.stranger)
            public = {"key": _public(key)}
            restated(folder, edge, key, **public, **changes)
        signed_anew(folder, scene.stranger)

    yield "everything is signed anew", all_anew
    yield "and states a smaller ε", lambda f: all_anew(f, **{"privacy.epsilon": 0.1})
    yield "the bundle alone is signed anew", lambda f: signed_anew(f, scene.stranger)


def _public(key: certificates.Key) -> str:
    import base64

    return base64.b64encode(certificates.public_bytes(key.public_key())).decode()


def test_a_hundred_forgeries_by_strangers_are_refused(scene: Scene, tmp_path: Path) -> None:
    # Given the true bundle, which is accepted,
    assert verdict_of(scene.folder).ok
    nothing = Anchors()
    one_anchor = Anchors({certificates.fingerprint(scene.run.authority.certificate)})
    forgeries = [(name, change, nothing) for name, change in strangers(scene)]
    forgeries += [(n, c, one_anchor) for n, c in with_an_authority_of_their_own(scene)]
    assert len(forgeries) >= 100
    # when it is changed by who has no key of the run, then each change is refused.
    for number, (name, change, anchors) in enumerate(forgeries):
        folder = tmp_path / str(number)
        shutil.copytree(scene.folder, folder)
        change(folder)
        assert not verdict_of(folder, anchors).ok, name
        shutil.rmtree(folder)


def test_a_zip_with_bytes_of_its_own_is_refused(scene: Scene, tmp_path: Path) -> None:
    content = scene.folder.with_suffix(".zip").read_bytes()
    (tmp_path / "longer.zip").write_bytes(b"#!/bin/sh\n" + content)
    assert [each.code for each in verdict_of(tmp_path / "longer.zip").refused] == ["zip"]


# -- the host ----------------------------------------------------------------------------------


def by_the_host(scene: Scene) -> Iterator[tuple[str, Change]]:
    """Yield what the host may do, which then signs everything with its authority's key."""
    run, host, key = scene.run, scene.run.authority, scene.key
    edges = sorted(run.statements)

    def then(change: Change) -> Change:
        def changed(folder: Path) -> None:
            change(folder)
            signed_anew(folder, host)

        return changed

    def refolded(folder: Path, stays: Callable[[str, int], bool]) -> None:
        """Fold the journal again with some messages alone, and make results and model fit."""
        entries = [e for n, e in enumerate(messages(run)) if stays(sender(e[1]), n)]
        signed_anew(folder, host, **journal_of(folder, entries, run))

    def minted(folder: Path, edge: str, **changes: Any) -> None:
        own_certificate(folder, edge, key, host)
        restated(folder, edge, key, key=_public(key), **changes)
        signed_anew(folder, host)

    def new_edge(folder: Path) -> None:
        put(folder, bundle.statement_of("edge-7"), (folder / "statements/edge-0.json").read_bytes())
        own_certificate(folder, "edge-7", key, host)
        restated(folder, "edge-7", key, key=_public(key), edge="edge-7")
        signed_anew(folder, host, edges=[*edges, "edge-7"])

    def dropped(folder: Path, edge: str) -> None:
        (folder / bundle.statement_of(edge)).unlink()
        (folder / bundle.certificate_of(edge)).unlink()
        others = [each for each in edges if each != edge]
        entries = [each for each in messages(run) if sender(each[1]) != edge]
        signed_anew(folder, host, edges=others, **journal_of(folder, entries, run))

    def without(edge: str, folder: Path) -> None:
        refolded(folder, lambda name, _: name != edge)

    def minted_less(folder: Path, edge: str) -> None:
        minted(folder, edge, **{"privacy.epsilon": 0.1})

    for edge in edges:
        yield f"{edge} is dropped, with all that it sent", partial(dropped, edge=edge)
        yield f"the journal has no message of {edge}", partial(without, edge)
        yield f"{edge} is minted anew", partial(minted, edge=edge)
        yield f"{edge} is minted anew with a smaller ε", partial(minted_less, edge=edge)
        yield f"{edge} states nothing", then(partial(left_out, bundle.statement_of(edge)))
        yield f"{edge} has a smaller ε in the results", then(partial(smaller_epsilon, of=edge))
    yield "an edge is minted that never was", new_edge
    yield "the results have a smaller ε", then(smaller_epsilon)
    yield (
        "the statement is of another run",
        then(partial(of_another, "statements/edge-0.json", scene.others)),
    )
    yield (
        "two statements are exchanged",
        then(partial(exchanged, "statements/edge-0.json", "statements/edge-1.json")),
    )
    yield (
        "the weights are others",
        then(partial(of_another, "model/model.safetensors", scene.others)),
    )
    yield (
        "the trained weights are others",
        then(partial(of_another, "results/model.safetensors", scene.others)),
    )
    yield "the card is another's", then(partial(of_another, "model/README.md", scene.others))
    yield "the definition is another's", then(partial(of_another, bundle.STATED, scene.others))
    yield "a message stands in the journal twice", lambda folder: refolded_twice(folder, scene)
    yield (
        "the last message is cut off",
        lambda folder: refolded(folder, lambda _, n: n < len(messages(run)) - 1),
    )
    yield (
        "the first update is cut out",
        lambda folder: refolded(folder, lambda _, n: n != len(edges)),
    )
    yield "the chain is of other messages", then(lambda folder: other_digest(folder))
    yield (
        "an older chain of the journal",
        lambda folder: signed_anew(folder, host, journal=stated(older(run))),
    )


def results_by_the_host(scene: Scene) -> Iterator[tuple[str, Change, str]]:
    """Yield results that promise more than the edges' charges, with the check that sees them."""
    statements = scene.run.statements

    def forgets(privacy: dict[str, Any]) -> None:
        for edge, signed in statements.items():
            nothing_charged(privacy, signed.statement.chain["first"], edge)
        privacy["epsilon"] = 0.0

    def bare_model(folder: Path) -> None:
        facts = json.loads((folder / "model/model.json").read_bytes())
        put(folder, "model/model.json", json.dumps(facts | {"privacy": {}}).encode())

    def other_card(folder: Path) -> None:
        privacy = json.loads((folder / SUMMARY).read_bytes())["privacy"]
        carded(folder, privacy, privacy | {"epsilon": 0.01})

    yield "no charge", partial(results_with, forgets), "privacy"
    yield "no edges", partial(results_with, lambda p: p.update(edges={}, epsilon=0.01)), "privacy"
    yield "another δ", partial(results_with, lambda p: p.update(delta=1e-30)), "privacy"
    yield "no privacy of the model", bare_model, "model"
    yield "a card with a smaller ε", other_card, "model"


def refolded_twice(folder: Path, scene: Scene) -> None:
    entries = messages(scene.run)
    values = journal_of(folder, [*entries, entries[-1]], scene.run)
    signed_anew(folder, scene.run.authority, **values)


def other_digest(folder: Path) -> None:
    flipped(bundle.CHAIN, folder)


def older(run: PastRun) -> JournalChain:
    chain = journal_chain.chain_of(run.journal)
    return replace(chain, entries=chain.entries[:-1])


def test_thirty_forgeries_by_the_host_are_refused_with_anchors(
    scene: Scene, tmp_path: Path
) -> None:
    anchors = scene.run.anchors()
    assert verdict_of(scene.folder, anchors).ok
    forgeries = list(by_the_host(scene))
    assert len(forgeries) >= 30
    for number, (name, change) in enumerate(forgeries):
        folder = tmp_path / str(number)
        shutil.copytree(scene.folder, folder)
        change(folder)
        assert not verdict_of(folder, anchors).ok, name
        shutil.rmtree(folder)


def test_results_that_promise_too_much_are_refused(scene: Scene, tmp_path: Path) -> None:
    for name, change, code in results_by_the_host(scene):
        folder = tmp_path / name
        shutil.copytree(scene.folder, folder)
        change(folder)
        signed_anew(folder, scene.run.authority)
        refused = {finding.code for finding in verdict_of(folder, scene.run.anchors()).refused}
        assert code in refused, name


def test_what_a_host_can_still_do_is_stated_and_never_proven(scene: Scene, tmp_path: Path) -> None:
    """As docs/verify.md lists it: results that are better than the truth, and other code."""
    anchors = scene.run.anchors()
    shutil.copytree(scene.folder, tmp_path / "better")
    folder = tmp_path / "better"
    true = json.loads((folder / "results/summary.json").read_bytes())["metrics"]
    summary_with(folder, metrics={"accuracy": 0.99})
    page = (folder / bundle.PAGE).read_text(encoding="utf-8")
    better = page.replace(printed_page._results(true), printed_page._results({"accuracy": 0.99}))
    assert better != page
    put(folder, bundle.PAGE, better.encode())
    facts = json.loads((folder / "model/model.json").read_bytes())
    put(folder, "model/model.json", json.dumps(facts | {"metrics": {"accuracy": 0.99}}).encode())
    host_code = json.loads((folder / bundle.CODE).read_bytes())
    put(folder, bundle.CODE, json.dumps(host_code | {"files": "0" * 64}).encode())
    signed_anew(folder, scene.run.authority)
    verdict = verdict_of(folder, anchors)
    assert verdict.ok, verdict.text()
    stated_codes = {each.code for each in verdict.findings if each.kind == "stated"}
    assert {"metrics", "code"} <= stated_codes


def test_without_anchors_a_host_that_mints_all_edges_is_believed(
    scene: Scene, tmp_path: Path
) -> None:
    shutil.copytree(scene.folder, tmp_path / "minted")
    for edge in scene.run.statements:
        key = certificates.new_key()
        own_certificate(tmp_path / "minted", edge, key, scene.run.authority)
        restated(tmp_path / "minted", edge, key, key=_public(key))
    signed_anew(tmp_path / "minted", scene.run.authority)
    verdict = verdict_of(tmp_path / "minted")
    assert verdict.ok, verdict.text()
    assert "the host alone" in {finding.by for finding in verdict.findings}
    assert not verdict_of(tmp_path / "minted", scene.run.anchors()).ok
