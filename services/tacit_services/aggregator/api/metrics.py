"""Prometheus metrics, read from the run when they are asked for.

No label names an edge, as fleets are large.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from importlib import metadata

from prometheus_client import CollectorRegistry
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.ingest.ledger_continuity import ROLLED_BACK
from tacit_services.aggregator.reporting.histogram import Histogram
from tacit_services.aggregator.reporting.run_status import RunStatus
from tacit_services.aggregator.run_journal import RunJournal

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


def registry(observer: RunStatus[ServerDriver]) -> CollectorRegistry:
    """A registry of this run alone."""
    made = CollectorRegistry()
    made.register(_Run(observer))
    return made


class _Run(Collector):
    def __init__(self, observer: RunStatus[ServerDriver]) -> None:
        self._observer = observer

    def collect(self) -> Iterable[Metric]:
        """All families: one consistent reading of the fold."""
        observer, driver = self._observer, self._observer.driver
        role = driver.role
        counts = dict(driver.counts)  # one step under the GIL: the driver adds keys meanwhile
        with driver.lock:
            version, schedule, edges = role.version, role.schedule(), len(role.edges)
            histogram, aged = dict(role.staleness), role.stale
        yield _build()
        yield from _messages(observer, counts, aged)
        yield from _privacy(observer)
        yield GaugeMetricFamily("tacit_model_version", "Updates applied.", version)
        yield GaugeMetricFamily(
            "tacit_target_updates", "Updates after which the run ends.", role.horizon
        )
        yield from _edges(observer, edges)
        yield from _journal(driver.journal)
        yield _latency(driver.admission.latency)
        yield GaugeMetricFamily("tacit_clip_norm", "C that edges are asked for.", schedule["clip"])
        yield GaugeMetricFamily("tacit_stage", "Stage of the schedule.", schedule.get("stage", 1))
        yield GaugeMetricFamily("tacit_halted", "1 after the run's end.", float(bool(role.halted)))
        yield from _shut_out(driver)
        yield from _health(observer)
        yield _staleness(histogram)
        yield from _evaluation(observer)


def _build() -> Metric:
    return InfoMetricFamily("tacit_build", "What answers.", {"version": metadata.version("tacit")})


def _privacy(observer: RunStatus[ServerDriver]) -> Iterable[Metric]:
    """ε of the run, never below what was spent; +Inf where there is no guarantee."""
    total = observer.total()
    yield GaugeMetricFamily(
        "tacit_epsilon", "ε of the run so far, at most; +Inf: no guarantee.", total.epsilon
    )
    yield GaugeMetricFamily("tacit_delta", "δ of that ε.", observer.definition.promise.delta)
    yield GaugeMetricFamily(
        "tacit_epsilon_budget_ratio",
        "Largest share of its budget that any edge has spent, at most.",
        total.share,
    )


def _messages(
    observer: RunStatus[ServerDriver], counts: dict[str, int], aged: int
) -> Iterable[Metric]:
    """Yield the counts of incoming messages by outcome."""
    for count, (name, text) in _COUNTED.items():
        yield CounterMetricFamily(name, text, counts.get(count, 0))
    yield CounterMetricFamily(
        "tacit_messages_flooded",
        "Messages dropped unread: far beyond the guard's rate.",
        observer.driver.limiter.dropped,
    )
    yield CounterMetricFamily("tacit_updates_stale", "Updates refused as too old.", aged)
    yield _rejected(counts)
    lied = sum(counts.get(f"rejected:{reason}", 0) for reason in ROLLED_BACK)
    yield CounterMetricFamily(
        "tacit_anchors_refused", "Ledgers that had fallen back, or forked.", lied
    )
    yield CounterMetricFamily(
        "tacit_broker_reconnects", "Broker connections after the first.", observer.reconnects()
    )


def _edges(observer: RunStatus[ServerDriver], known: int) -> Iterable[Metric]:
    yield GaugeMetricFamily("tacit_edges", "Edges that ever said Hello.", known)
    yield GaugeMetricFamily("tacit_edges_online", "Edges connected now.", observer.online())
    refused = observer.refusals()
    yield GaugeMetricFamily(
        "tacit_edges_refusing", "Edges refusing the model.", refused["edges_refusing"]
    )
    yield GaugeMetricFamily(
        "tacit_models_refused", "Models that edges say they have refused.", refused["refusals"]
    )


def _shut_out(driver: ServerDriver) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        "tacit_edges_quarantined", "Edges that the guard hears no more.", len(driver.quarantined)
    )
    flooding = len(driver.limiter.shut())
    yield GaugeMetricFamily(
        "tacit_edges_shut_out", "Edges not heard for a while, as they flood.", flooding
    )


def _health(observer: RunStatus[ServerDriver]) -> Iterable[Metric]:
    driver = observer.driver
    store, broker = driver.epoch > 0 and driver.store_up, observer.broker_up()
    yield GaugeMetricFamily(
        "tacit_store_up", "1 when the store is there and the run read back.", float(store)
    )
    yield GaugeMetricFamily("tacit_broker_up", "1 while connected to the broker.", float(broker))
    yield GaugeMetricFamily(
        "tacit_ready", "1 when the broker and store are there.", float(store and broker)
    )


def _journal(journal: RunJournal) -> Iterable[Metric]:
    age = time.monotonic() - journal.saved_at
    yield GaugeMetricFamily(
        "tacit_journal_entries", "Entries since the snapshot.", journal.cursor - journal.saved
    )
    yield GaugeMetricFamily("tacit_journal_bytes", "Payload of those entries.", journal.held_bytes)
    yield GaugeMetricFamily(
        "tacit_snapshot_age_seconds", "Since the snapshot was last brought up to date.", age
    )


def _latency(latency: Histogram) -> Metric:
    text = (
        "From taking a message in hand to having it in the model: decoding, the append, the fold."
    )
    return HistogramMetricFamily(
        "tacit_apply_latency_seconds", text, latency.buckets(), latency.total
    )


def _rejected(counts: dict[str, int]) -> Metric:
    family = CounterMetricFamily(
        "tacit_messages_rejected", "Messages refused, by reason.", labels=["reason"]
    )
    for name, count in sorted(counts.items()):
        if name.startswith("rejected:"):
            family.add_metric([name.removeprefix("rejected:")], count)
    return family


def _staleness(histogram: dict[int, int]) -> Metric:
    buckets = [
        (f"{bound}.0", sum(n for tau, n in histogram.items() if tau <= bound)) for bound in _BUCKETS
    ]
    buckets.append(("+Inf", sum(histogram.values())))
    total = sum(tau * n for tau, n in histogram.items())
    return HistogramMetricFamily(
        "tacit_update_staleness_versions", "Staleness of applied updates.", buckets, total
    )


def _evaluation(observer: RunStatus[ServerDriver]) -> Iterable[Metric]:
    if observer.series:
        last = observer.series[-1]
        yield GaugeMetricFamily(
            "tacit_test_accuracy_ratio", "At the last evaluation.", last["accuracy"]
        )
        yield GaugeMetricFamily("tacit_test_loss", "At the last evaluation.", last["loss"])
