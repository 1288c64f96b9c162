"""Whether the sections of a run file agree with one another."""

from __future__ import annotations

from tacit.config.algorithm_contract import Sections
from tacit.config.asked import ASK, SUMS
from tacit.config.asked_table import AskedTable
from tacit.config.sections import GAUSSIAN
from tacit.config.traits import Traits
from tacit.robust import rules

_NO_START = {
    "party": "waits for all its parties",
    "peer": "has no server to wait at",
}  # edges.min is not theirs


def agree(run: Sections, traits: Traits, rows: int) -> None:
    """Raise ValueError where one section contradicts another.

    traits: its algorithm's. rows: the public number of rows of an edge.
    """
    _questions(run)
    _guard(run, traits)
    run.data.agree(run)
    run.algorithm.agree(run)
    _whole_model(run)
    _edges(run, rows)
    _network(run, traits)
    _participation(run, traits)
    _judging(run)


def _questions(run: Sections) -> None:
    """Raise ValueError where questions are asked beside training, or in its place without any."""
    asks = run.ask is not None
    if asks != (run.algorithm.name == ASK):
        wrong = "[ask] asks in the place of training" if asks else "needs [ask] questions"
        raise ValueError(f"algorithm.name={run.algorithm.name}: {wrong}")
    if asks != (run.model.name == SUMS):
        wrong = "questions have no model" if asks else "is for questions, [ask]"
        raise ValueError(f"model.name={run.model.name}: {wrong}")
    if asks and not isinstance(run.data, AskedTable):
        raise ValueError(
            'ask: questions are asked of a table, data.kind = "table", without data.target'
        )


def _judging(run: Sections) -> None:
    """Raise ValueError where edges cannot judge."""
    if not run.evaluation.at_edges:
        return
    where = 'evaluation.at="edges"'
    if run.algorithm.worker != "edge":
        raise ValueError(
            f"{where}: is for algorithms whose server has the whole model, which "
            f"{run.algorithm.name} has not; leave it out"
        )
    if run.ask is not None:
        raise ValueError(f"{where}: questions have no model to judge; leave it out")
    p = run.privacy
    if p.mechanism not in GAUSSIAN or p.noise_at != "edge":
        raise ValueError(
            f"{where}: privacy.mechanism={p.mechanism} at the {p.noise_at}; looks need one of "
            f"{', '.join(GAUSSIAN)} at the edge"
        )
    if run.model.control_flow == "trusted":
        raise ValueError(f"{where}: model.control_flow=trusted may raise at a row; use a graph")
    if run.network.staleness is not None:
        raise ValueError(f"{where}: network.staleness has no time for looks; leave one out")
    if run.evaluation.looks > run.run.updates:
        raise ValueError(
            f"evaluation.looks={run.evaluation.looks}: above run.updates={run.run.updates}"
        )


def _whole_model(run: Sections) -> None:
    """Raise ValueError for keys that need a server with the whole model."""
    if run.run.average is not None and run.algorithm.worker != "edge":
        raise ValueError(
            f"run.average={run.run.average:g}: {run.algorithm.name} has no server whose models "
            "could be averaged; leave it out"
        )
    if run.run.stop != "never" and run.algorithm.worker != "edge":
        raise ValueError(
            f'run.stop="{run.run.stop}": is for algorithms whose server has the whole model, which '
            f"that of {run.algorithm.name} has not; leave it out"
        )


def _edges(run: Sections, rows: int) -> None:
    p = run.privacy
    edges = run.edges
    if p.batch > rows and p.private:
        raise ValueError(
            f"privacy.batch={p.batch:g} is above the {rows} {run.data.rows_called} of one "
            f"edge; a tenth, {max(1, rows // 10)}, is a good start"
        )
    for name, each in (("epsilon", edges.epsilon), ("slowdown", edges.slowdown)):
        if len(each) > edges.count:
            raise ValueError(f"edges.{name} names {len(each)} edges, edges.count={edges.count}")


def _network(run: Sections, traits: Traits) -> None:
    network = run.network
    edges = run.edges
    a = run.algorithm
    if any(away.edge >= edges.count for away in network.away):
        raise ValueError(f"network.away: an edge is not below edges.count={edges.count}")
    if network.staleness is not None:
        allowed = traits.oldest
        if allowed is None:
            raise ValueError(
                f"network.staleness={network.staleness}: {a.name} works in rounds, nothing is stale"
            )
        if network.staleness > allowed:
            raise ValueError(
                f"network.staleness={network.staleness} is above algorithm.max_staleness={allowed}"
            )


def _participation(run: Sections, traits: Traits) -> None:
    edges = run.edges
    name = run.algorithm.name
    if edges.min is not None and edges.min > edges.count:
        raise ValueError(
            f"edges.min={edges.min} is above edges.count={edges.count}; more than will ever come"
        )
    if edges.min is not None and (why := _NO_START.get(run.algorithm.worker)):
        raise ValueError(f"edges.min={edges.min}: {name} {why}; leave it out")
    if edges.share == "budget" and not traits.in_turn:
        raise ValueError(
            f"edges.share=budget: {name} with these keys works in rounds, from a queue or "
            f"between peers; leave it out"
        )
    if edges.share == "budget" and not run.privacy.private:
        raise ValueError(
            f"edges.share=budget: privacy.mechanism={run.privacy.mechanism} spends none; use rows"
        )


def _guard(run: Sections, traits: Traits) -> None:
    """Check that [guard] asks for nothing that this run's algorithm or noise rules out.

    `norm_factor` and `sums` need noise of a known size at the edge, and `sums` an algorithm whose
    updates have a law; `rule` needs an algorithm that combines several updates.
    """
    guard = run.guard
    p = run.privacy
    a = run.algorithm
    noisy = p.mechanism in GAUSSIAN and p.noise_at == "edge"
    if guard.norm_factor is not None and not noisy:
        raise ValueError(
            f"guard.norm_factor: privacy.mechanism={p.mechanism} at the {p.noise_at} gives "
            f"no bound; only gaussian and discrete_gaussian at the edge do"
        )
    if guard.sums and not traits.watched:
        raise ValueError(
            f"guard.sums=true: there is no law of what {a.name} sends (tacit.robust.law); leave it "
            f"out"
        )
    if guard.sums and not noisy:
        raise ValueError(
            f"guard.sums=true: privacy.mechanism={p.mechanism} at the {p.noise_at} has no law; "
            f"only gaussian and discrete_gaussian at the edge do"
        )
    if guard.rule != "mean" and not traits.combines:
        raise ValueError(
            f'guard.rule="{guard.rule}": {a.name} takes updates one by one; only fedbuff, '
            f"fedavg and dp-pasgd combine several"
        )
    if guard.rule != "mean" and traits.uploads > rules.MOST:
        raise ValueError(
            f'guard.rule="{guard.rule}": {a.name} combines {traits.uploads} updates, which the '
            f"server would hold all; at most {rules.MOST}"
        )
