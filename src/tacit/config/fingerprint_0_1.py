"""The fingerprint that tacit 0.1 gave to a run, so that a run which 0.1 has begun is known again.

0.1 hashed every value of a run file. This file holds its keys, in its order, with its defaults, and
never changes: a key that came later is left out, one that went away has the value that it had when
nobody named it.
"""

from __future__ import annotations

import hashlib
from typing import Any

from pydantic import BaseModel
from pydantic_core import to_json

Keys = dict[str, Any]
REQUIRED = None  # a key that has no default
_RUN: Keys = {"name": "run", "updates": REQUIRED, "seed": 1, "snapshot_every": 200}
_DATA: Keys = {
    "dataset": REQUIRED,
    "features": "none",
    "partition": "iid",
    "alpha": 0.5,
    "spare": 0,
    "spare_weight": 0.25,
    "vocabulary": 2000,
    "sequence": 32,
}
_MODEL: Keys = {
    "name": REQUIRED,
    "channels": (10, 20),
    "kernel": 5,
    "pool_every": 1,
    "hidden": (),
    "embedding": 64,
    "width": 16,
    "blocks": 1,
    "activation": "relu",
    "regularization": 0.0,
    "normalization": "none",
}
_PRIVACY: Keys = {
    "mechanism": "discrete_gaussian",
    "noise_at": "edge",
    "epsilon": 2.0,
    "delta": 1e-5,
    "pushes": 1000,
    "batch": 256.0,
    "noise_multiplier": None,
    "clip": None,
    "clip_min": 0.1,
    "clip_max": 100.0,
    "paper_epsilon": 0.1,
}
_EDGES: Keys = {"count": 5, "epsilon": (), "slowdown": ()}
_EVALUATION: Keys = {"every": 250, "samples": 2000}
_MAPA: Keys = {
    "name": REQUIRED,
    "smoothness": 10.0,
    "deviation": 30.0,
    "radius": 1.0,
    "reduction": 0.5,
    "initial_gap": 2.3,
    "failure": 1e-3,
    "max_staleness": 100,
}
_FEDASYNC: Keys = {
    "name": REQUIRED,
    "learning_rate": 0.1,
    "steps_min": 5,
    "steps_max": None,
    "proximal": 0.0,
    "mixing": 0.6,
    "staleness": "constant",
    "a": 0.5,
    "b": 4,
    "mixing_decay": 1.0,
    "mixing_decay_at": 1.0,
    "max_staleness": 100,
    "concurrency": None,
    "buffer": 10,
    "server_rate": 1.0,
    "clients": None,
    "quorum": 0.5,
    "deadline_s": 60.0,
}
_DP_PASGD: Keys = {
    "name": REQUIRED,
    "learning_rate": 0.1,
    "tau": 10,
    "quorum": 0.5,
    "deadline_s": 60.0,
}
_GOSSIP: Keys = {
    "name": REQUIRED,
    "learning_rate": 0.1,
    "topology": "ring",
    "link_probability": 0.5,
    "max_staleness": 16,
    "report_every": 10,
}
_VAFL: Keys = {
    "name": REQUIRED,
    "t": 1,
    "synchronous": False,
    "max_delay": None,
    "steps_rule": "constant",
    "learning_rate": 0.1,
    "server_share": 1.0,
    "smoothness": 1.0,
    "convexity": 1e-3,
    "delay_bound": 0,
    "tail": 1.0,
    "ratio": 0.5,
    "rarest": None,
    "scale": 1.0,
    "embedding": "linear",
    "width": 10,
    "hidden": (),
    "channels": (10, 20),
    "kernel": 3,
    "activation": "relu",
    "smoothing": 0.0,
    "combine": "sum",
    "quadrants": False,
    "regularization": (0.0,),
    "mode": "cached",
    "step_clip": 1.0,
    "label_epsilon": None,
}
_ALGORITHMS = (
    (("mapa", "audp", "asgd", "csgd"), _MAPA),
    (("fedasync", "fedavg", "fedbuff", "sgd"), _FEDASYNC),
    (("dp-pasgd",), _DP_PASGD),
    (("adp2sgd", "adpsgd", "sync"), _GOSSIP),
    (("vafl",), _VAFL),
)


def fingerprint(run: BaseModel, name: str, different: Keys) -> str | None:
    """SHA-256 of a run file, as 0.1 made it; None for a run that 0.1 had no words for.

    name: its algorithm's. different: what it says differently from the defaults.
    """
    algorithm = next((keys for names, keys in _ALGORITHMS if name in names), None)
    if algorithm is None:
        return None
    sections = {
        "run": _RUN,
        "data": _DATA,
        "model": _MODEL,
        "algorithm": algorithm,
        "privacy": _PRIVACY,
        "edges": _EDGES,
        "evaluation": _EVALUATION,
    }
    for section, keys in different.items():
        if (
            section not in ("guard", "network")
            and not keys.keys() <= sections.get(section, {}).keys()
        ):
            return None
    content = {
        section: {
            key: getattr(getattr(run, section), key, default) for key, default in keys.items()
        }
        for section, keys in sections.items()
    }
    return hashlib.sha256(to_json(content)).hexdigest()
