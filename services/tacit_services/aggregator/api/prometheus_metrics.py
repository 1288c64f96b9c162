"""Prometheus metrics, read from the run when they are asked for.

No label names an edge, as fleets are large.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from importlib import metadata
from typing import Any

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tacit.privacy.report import Promise
from tacit_services.aggregator.ingest.ledger_continuity import ROLLED_BACK
from tacit_services.aggregator.reading import Load, RunReading
from tacit_services.aggregator.reporting.accounts import Total
from tacit_services.aggregator.reporting.run_status import RunStatus

_BUCKETS = (0, 1, 2, 5, 10, 20, 50, 100, 200, 500)
# Count: its family, and what it counts.
_COUNTED = {
    "accepted": (
        "tacit_messages_accepted",
        "Messages appended to the journal (updates, hellos, farewells).",
    ),
    "duplicate": ("tacit_messages_duplicate", "Messages that the journal had already."),
    "busy": ("tacit_messages_busy", "Messages sent back because the journal was full or away."),
    "snapshots": ("tacit_snapshots", "Snapshots of the fold."),
    "replayed": (
        "tacit_journal_entries_replayed",
        "Journal entries folded again after a start or a store failure (replays).",
    ),
    "late": ("tacit_updates_late", "Updates under way when the run ended."),
    "throttled": (
        "tacit_messages_throttled",
        "Messages sent back because their edge had sent more than the guard allows.",
    ),
}


def registry(run_status: RunStatus, certificate_ends: float | None = None) -> CollectorRegistry:
    """Return a registry of this run alone.

    certificate_ends: of the aggregator, in seconds since 1970; None: it has none.
    """
    registry = CollectorRegistry()
    registry.register(_Run(run_status, certificate_ends))
    return registry


class _Run(Collector):
    def __init__(self, run_status: RunStatus, certificate_ends: float | None) -> None:
        self._run_status = run_status
        self._certificate_ends = certificate_ends

    def collect(self) -> Iterable[Metric]:
        """Yield all families: one consistent reading of the run."""
        reading = self._run_status.reading()
        schedule = reading.schedule
        load = reading.load
        yield _build()
        yield from _messages(reading)
        yield from _privacy(self._run_status.total(reading), self._run_status.definition.promise)
        yield GaugeMetricFamily("tacit_model_version", "Updates applied.", reading.version)
        yield GaugeMetricFamily(
            "tacit_target_updates", "Updates after which the run ends.", reading.horizon
        )
        yield from _edges(reading)
        yield GaugeMetricFamily("tacit_clip_norm", "C that edges are asked for.", schedule["clip"])
        yield GaugeMetricFamily("tacit_stage", "Stage of the schedule.", schedule.get("stage", 1))
        yield GaugeMetricFamily("tacit_halted", "1 after the run's end.", float(reading.halted))
        yield from _health(reading)
        if self._certificate_ends is not None:
            yield GaugeMetricFamily(
                "tacit_certificate_end_timestamp_seconds",
                "When the aggregator's certificate ends.",
                self._certificate_ends,
            )
        if load is not None:
            yield from _load(load)
        yield _staleness(reading.staleness)
        yield from _evaluation(self._run_status.series)


def _build() -> Metric:
    return InfoMetricFamily("tacit_build", "What answers.", {"version": metadata.version("tacit")})


def _privacy(total: Total, promise: Promise) -> Iterable[Metric]:
    """Yield ε of the run, never below what was spent; +Inf where there is no guarantee."""
    yield GaugeMetricFamily(
        "tacit_epsilon", "ε of the run so far, at most; +Inf: no guarantee.", total.epsilon
    )
    yield GaugeMetricFamily("tacit_delta", "δ of that ε.", promise.delta)
    yield GaugeMetricFamily(
        "tacit_epsilon_budget_ratio",
        "Largest share of its budget that any edge has spent, at most.",
        total.share,
    )


def _messages(reading: RunReading) -> Iterable[Metric]:
    """Yield the counts of incoming messages by outcome."""
    counts = reading.counts
    for count, (name, text) in _COUNTED.items():
        yield CounterMetricFamily(name, text, counts.get(count, 0))
    yield CounterMetricFamily("tacit_updates_stale", "Updates refused as too old.", reading.stale)
    yield _rejected(counts)
    lied = sum(counts.get(f"rejected:{reason}", 0) for reason in ROLLED_BACK)
    yield CounterMetricFamily(
        "tacit_anchors_refused", "Ledgers that had fallen back, or forked.", lied
    )


def _edges(reading: RunReading) -> Iterable[Metric]:
    yield GaugeMetricFamily("tacit_edges", "Edges that ever said Hello.", len(reading.records))
    yield GaugeMetricFamily("tacit_edges_online", "Edges connected now.", reading.online)
    yield GaugeMetricFamily("tacit_edges_refusing", "Edges refusing the model.", reading.refusing)
    yield GaugeMetricFamily(
        "tacit_models_refused", "Models that edges say they have refused.", reading.refusals
    )
    yield GaugeMetricFamily(
        "tacit_edges_quarantined", "Edges that the guard hears no more.", len(reading.quarantined)
    )


def _health(reading: RunReading) -> Iterable[Metric]:
    health = reading.health
    store = health.recovered and health.store_up
    broker = health.broker_up
    yield GaugeMetricFamily(
        "tacit_store_up", "1 when the store is there and the run read back.", float(store)
    )
    yield GaugeMetricFamily("tacit_broker_up", "1 while connected to the broker.", float(broker))
    yield GaugeMetricFamily(
        "tacit_ready", "1 when the broker and store are there.", float(store and broker)
    )
    yield CounterMetricFamily(
        "tacit_broker_reconnects", "Broker connections after the first.", health.reconnects
    )


def _load(load: Load) -> Iterable[Metric]:
    yield CounterMetricFamily(
        "tacit_messages_flooded",
        "Messages dropped unread: far beyond the guard's rate.",
        load.dropped,
    )
    yield GaugeMetricFamily(
        "tacit_edges_shut_out", "Edges not heard for a while, as they flood.", load.shut_out
    )
    yield GaugeMetricFamily("tacit_journal_entries", "Entries since the snapshot.", load.entries)
    yield GaugeMetricFamily("tacit_journal_bytes", "Payload of those entries.", load.size)
    yield GaugeMetricFamily(
        "tacit_snapshot_age_seconds",
        "Since the snapshot was last brought up to date.",
        load.snapshot_age,
    )
    yield HistogramMetricFamily(
        "tacit_apply_latency_seconds",
        "From taking a message in hand to having it in the model: decoding, the append, the fold.",
        load.latencies,
        load.latency,
    )


def _rejected(counts: Mapping[str, int]) -> Metric:
    family = CounterMetricFamily(
        "tacit_messages_rejected", "Messages refused, by reason.", labels=["reason"]
    )
    for name, count in sorted(counts.items()):
        if name.startswith("rejected:"):
            family.add_metric([name.removeprefix("rejected:")], count)
    return family


def _staleness(histogram: Mapping[int, int]) -> Metric:
    buckets = [
        (f"{bound}.0", sum(n for tau, n in histogram.items() if tau <= bound)) for bound in _BUCKETS
    ]
    buckets.append(("+Inf", sum(histogram.values())))
    total = sum(tau * n for tau, n in histogram.items())
    return HistogramMetricFamily(
        "tacit_update_staleness_versions", "Staleness of applied updates.", buckets, total
    )


def _evaluation(series: Sequence[Mapping[str, Any]]) -> Iterable[Metric]:
    if series:
        last = series[-1]
        yield GaugeMetricFamily(
            "tacit_test_accuracy_ratio", "At the last evaluation.", last["accuracy"]
        )
        yield GaugeMetricFamily("tacit_test_loss", "At the last evaluation.", last["loss"])
