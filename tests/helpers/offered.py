"""Run files of a federation, and what researchers and members make of them."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Literal

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from tacit_services.offers.offer import OFFER, Offer
from tacit_services.offers.packing import PackedOffer, pack
from tacit_services.offers.researcher_key import ResearcherKey

from tests.helpers.run_files import Keys, toml

COLUMNS = {
    "dose": {"low": 0.0, "high": 1.0},
    "age": {"low": 0.0, "high": 1.0},
    "ill": {"values": [0, 1]},
}
TABLE = {"kind": "table", "dataset": None, "target": "ill", "rows": 400, "columns": COLUMNS}


def key(
    name: str = "Dr. Ada Weiß", seed: int = 1, signed_by: Literal["host"] | None = None
) -> ResearcherKey:
    """Return a researcher's key, the same for the same seed; or the host's, for them."""
    secret = Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32)
    return ResearcherKey(name, secret, signed_by)


def table(path: Path, rows: int, seed: int, **more: list[str]) -> Path:
    """Write a table of `rows` rows, in which who has a dose is mostly ill, and return its path."""
    random = np.random.default_rng(seed)
    dose, age = random.random(rows), random.random(rows)
    ill = (dose + 0.1 * random.standard_normal(rows) > 0.5).astype(int)
    path.parent.mkdir(parents=True, exist_ok=True)
    names = ["dose", "age", "ill", *more]
    lines = [",".join(names)]
    for number, (a, b, c) in enumerate(zip(dose, age, ill, strict=True)):
        lines.append(
            ",".join([f"{a:.4f}", f"{b:.4f}", str(c), *(each[number] for each in more.values())])
        )
    path.write_text("\n".join(lines) + "\n")
    return path


def federations_run(**sections: Keys) -> str:
    """Return a run file of a federation on `TABLE`, in which sections may differ."""
    usual: dict[str, Keys] = {
        "run": {"name": "doses", "updates": 60},
        "data": TABLE,
        "algorithm": {"name": "fedasync", "learning_rate": 4.0, "steps_min": 1},
        "privacy": {"noise_multiplier": 0.8, "clip": 1.0, "batch": 50, "epsilon": 100.0},
        "edges": {"count": 2},
        "evaluation": {"every": 20},
    }
    return toml(usual, sections)


def packed(
    folder: Path, text: str, run: str = "doses-1", by: ResearcherKey | None = None
) -> PackedOffer:
    """Return the offer of the run file `text`, which is written beside its files in `folder`."""
    (folder / "run.toml").write_text(text)
    return pack(folder / "run.toml", run, by or key(), folder / "packed")


def fetched(offer: PackedOffer, folder: Path) -> Path:
    """Copy an offer and its files into a member's folder, nothing else, and return it."""
    folder.mkdir(parents=True)
    (folder / OFFER).write_bytes(offer.offer.content())
    for name in offer.offer.files:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(offer.folder / name, folder / name)
    return folder


def changed(offer: Offer, **values: object) -> Offer:
    """Return an offer with other values, signed by the key of `key()`."""
    content = json.loads(offer.content()) | values | {"signature": ""}
    return key().signed(Offer.model_validate(content))
