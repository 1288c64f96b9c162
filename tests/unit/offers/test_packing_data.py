"""A run file without code becomes the same offer where nothing may be executed."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from tacit_services.offers.packing import pack_data

from tacit.errors import ConfigError, ConfigFaults
from tests.helpers.offered import federations_run, key, packed
from tests.unit.offers.test_packing import ARRAYS, KINDS, offered, researchers

MODULES = ("nets", "readers", "rules", "servers", "judges")
CODE = {
    "a text": "model.entry=nets:Bag",
    "a module": "model.entry=nets:net",
    "low-rank additions to a public start": "model.entry=nets:Low",
    "a front": "data.features.front=nets:front",
    "a reader of the owner's": "data.entry=readers:Rows",
    "metrics of the host's own": "evaluation.metrics=judges:share",
}
OWN = "an own algorithm with a rule at sites"


@pytest.fixture(autouse=True)
def _unloaded() -> None:
    for name in MODULES:
        sys.modules.pop(name, None)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind not in (*CODE, OWN)])
def test_the_offer_is_the_one_that_its_researcher_would_pack(kind: str, tmp_path: Path) -> None:
    theirs = offered(kind, tmp_path)
    text = federations_run(**KINDS[kind].sections)
    ours = pack_data(text, "doses-1", key(), tmp_path / "researcher")
    assert ours.offer == theirs.offer
    assert (ours.at_host, ours.test) == (theirs.at_host, theirs.test)
    assert pack_data(text, None, key(), tmp_path / "researcher").offer.run == "doses"


@pytest.mark.parametrize("kind", [*CODE, OWN])
def test_code_is_refused_by_its_key_and_nothing_is_imported(kind: str, tmp_path: Path) -> None:
    place = researchers(tmp_path)
    with pytest.raises(ConfigError) as refused:
        pack_data(federations_run(**KINDS[kind].sections), None, key(), place)
    assert CODE.get(kind, "algorithm.entry=servers:Own") in str(refused.value)
    assert not set(MODULES) & set(sys.modules)


def test_a_module_that_is_installed_is_not_imported_either(tmp_path: Path) -> None:
    sys.modules.pop("antigravity", None)
    entry: dict[str, Any] = {"name": "python", "entry": "antigravity:geohash"}
    metrics = {"metrics": ["antigravity:geohash"]}
    with pytest.raises(ConfigFaults) as refused:
        pack_data(federations_run(model=entry, evaluation=metrics), None, key(), tmp_path)
    assert [fault.partition(":")[0] for fault in refused.value.faults] == [
        "model.entry=antigravity",
        "evaluation.metrics=antigravity",
    ]
    assert "antigravity" not in sys.modules


def test_all_files_that_are_missing_are_named_at_once(tmp_path: Path) -> None:
    sections: dict[str, Any] = {
        "data": ARRAYS | {"test": "public.npz", "features": [{"basis": "axes.safetensors"}]},
        "model": {"name": "graph", "file": "net.graph.json"},
    }
    with pytest.raises(ConfigFaults) as refused:
        pack_data(federations_run(**sections), None, key(), tmp_path)
    assert len(refused.value.faults) == 3
    for name in ("public.npz", "axes.safetensors", "net.graph.json"):
        assert name in str(refused.value)


def test_a_host_that_signs_says_so_in_the_offer(tmp_path: Path) -> None:
    text = federations_run()
    host = key(signed_by="host")
    offer = pack_data(text, "doses-1", host, tmp_path).offer
    assert offer.researcher.signed_by == "host"
    assert b'"signed_by":"host"' in offer.content()
    (tmp_path / "own").mkdir()
    usual = packed(tmp_path / "own", text).offer
    assert b"signed_by" not in usual.content()
    assert usual.fingerprint != offer.fingerprint
