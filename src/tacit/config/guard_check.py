"""Whether [guard] fits the rest of a run file."""

from __future__ import annotations

from tacit.config.contract import Sections
from tacit.config.sections import GAUSSIAN
from tacit.robust import rules


def agree(run: Sections) -> None:
    """Raise ValueError where [guard] asks for a check that this run's algorithm or noise rules out.

    `norm_factor` and `sums` need noise of a known size at the edge, and `sums` an algorithm whose
    updates have a law; `rule` needs an algorithm that combines several updates.
    """
    guard, p, a = run.guard, run.privacy, run.algorithm
    noisy = p.mechanism in GAUSSIAN and p.noise_at == "edge"
    if guard.norm_factor is not None and not noisy:
        raise ValueError(
            f"guard.norm_factor: privacy.mechanism={p.mechanism} at the {p.noise_at} gives "
            f"no bound; only gaussian and discrete_gaussian at the edge do"
        )
    if guard.sums and not a.watched:
        raise ValueError(
            f"guard.sums=true: there is no law of what {a.name} sends (tacit.robust.law); leave it "
            f"out"
        )
    if guard.sums and not noisy:
        raise ValueError(
            f"guard.sums=true: privacy.mechanism={p.mechanism} at the {p.noise_at} has no law; "
            f"only gaussian and discrete_gaussian at the edge do"
        )
    if guard.rule != "mean" and not a.combines:
        raise ValueError(
            f'guard.rule="{guard.rule}": {a.name} takes updates one by one; only fedbuff, '
            f"fedavg and dp-pasgd combine several"
        )
    if guard.rule != "mean" and (most := a.uploads(run.edges.count)) > rules.MOST:
        raise ValueError(
            f'guard.rule="{guard.rule}": {a.name} combines {most} updates, which the server would '
            f"hold all; at most {rules.MOST}"
        )
