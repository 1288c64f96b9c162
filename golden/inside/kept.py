"""What no processor changes, found in one tree: the contents of golden/kept."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

from golden.inside import interfaces, snapshots
from golden.inside.envelopes import envelopes
from golden.layout import RunFile, Spend, calibrate, config, epsilon_pld, epsilon_rdp, gdp

# significant digits that are kept; 9 are compared (differences.py): the last ones are the
# processor's
EXACT = 12
PLANS = [  # mechanism, q, z, pushes, δ
    ("gaussian", 0.01, 1.0, 1000, 1e-5),
    ("gaussian", 0.0226, 0.85, 1150, 1e-5),
    ("gaussian", 1.0, 5.0, 50, 1e-5),
    ("gaussian", 1.0, 0.5, 1, 1e-6),
    ("gaussian", 0.33, 3.5, 450, 1e-5),
    ("discrete_gaussian", 0.01, 1.0, 1000, 1e-5),
    ("discrete_gaussian", 0.0226, 0.85, 1150, 1e-5),
    ("discrete_gaussian", 0.0314, 1.26, 99, 1e-4),
    ("discrete_gaussian", 0.33, 3.5, 450, 1e-5),
    ("knorm", 0.1, 2.0, 100, 1e-5),
    ("knorm", 1.0, 10.0, 10, 1e-5),
    ("gaussian", 0.5, 0.0, 1, 1e-5),
]
CALIBRATED = [  # ε, δ, pushes, q, mechanism
    (2.0, 1e-5, 1150, 0.0226, "discrete_gaussian"),
    (4.0, 1e-5, 600, 0.334, "discrete_gaussian"),
    (10.0, 1e-4, 99, 0.0314, "gaussian"),
    (1.0, 1e-5, 20, 0.2, "knorm"),
]


def kept(kind: str, **given: Any) -> dict[str, Any]:
    """One of KINDS."""
    return KINDS[kind](**given)


def algorithms() -> list[str]:
    """Every name that algorithm.name may have."""
    sections = get_args(RunFile.model_fields["algorithm"].annotation)
    return sorted(
        name for section in sections for name in get_args(section.model_fields["name"].annotation)
    )


def fingerprints(folder: str) -> dict[str, str]:
    """Of every run file in `folder`."""
    return {
        path.name: config.load(path).fingerprint() for path in sorted(Path(folder).glob("*.toml"))
    }


def epsilons() -> dict[str, Any]:
    """Return ε of the plans by both accountants, and as a party's where it has one.

    Returns z of the calibrated plans, too.
    """
    found: dict[str, Any] = {}
    for mechanism, rate, z, pushes, delta in PLANS:
        history = (Spend(rate, z, pushes, mechanism),)
        numbers = {"pld": epsilon_pld(history, delta), "rdp": epsilon_rdp(history, delta)}
        if rate == 1 and mechanism == "gaussian":
            numbers["gdp"] = gdp.epsilon(gdp.mu(history), delta)
        name = f"{mechanism} q={rate} z={z} pushes={pushes} delta={delta}"
        found[name] = {key: f"{value:.{EXACT}g}" for key, value in numbers.items()}
    for epsilon, delta, pushes, rate, mechanism in CALIBRATED:
        name = f"z of {mechanism} epsilon={epsilon} delta={delta} pushes={pushes} q={rate}"
        found[name] = calibrate(epsilon, delta, pushes, rate, mechanism)
    return found


KINDS: dict[str, Callable[..., dict[str, Any]]] = {
    "fingerprints": fingerprints,
    "envelopes": envelopes,
    "snapshots": snapshots.snapshots,
    "summaries": snapshots.summaries,
    "commands": interfaces.command_tree,
    "run-file": interfaces.run_file,
    "rest": interfaces.rest,
    "metrics": interfaces.metric_names,
    "topics": interfaces.topic_names,
    "epsilon": epsilons,
}
