"""`tacit party`: take an identity, load its columns of everybody's records, and work until Halt."""

from __future__ import annotations

import logging

import torch

from services.edge.main import serve, stopping, terms
from services.edge.workplace import workplace
from services.party.loop import PartyLoop
from services.runtime.identity import Identity
from services.runtime.settings import EdgeSettings
from tacit import datasets, vertical_plan
from tacit.algorithms.vafl_party import Party
from tacit.alignment import names
from tacit.config import RunFile
from tacit.privacy.embeddings import EmbeddingReleaser
from tacit.privacy.ledger import Ledger
from tacit.privacy.sampling import Random

log = logging.getLogger("tacit.party")


def main(settings: EdgeSettings) -> None:
    """Run one party to its end. Raises TacitError."""
    stop = stopping()
    torch.set_num_threads(settings.threads)
    run = settings.load_run()
    section = vertical_plan.section(run)
    with workplace(settings, run, stop) as place:
        if place is None:
            return
        role = build_role(settings, run, place.identity, place.ledger)
        largest = max(round(run.privacy.batch) * section.width, 1)
        needs = terms(settings, run, run.build_model(), largest, place.identity.number)
        serve(settings, PartyLoop(role, place.outbox, needs, place.turns), stop, place.tls)


def build_role(settings: EdgeSettings, run: RunFile, identity: Identity, ledger: Ledger) -> Party:
    """The role of this identity with its own columns. Raises ConfigError, DataError, PrivacyError."""
    number = identity.number
    data = [datasets.load(run.data.dataset, split, settings.data) for split in ("train", "test")]
    x = torch.cat([vertical_plan.view(run, d.x, number) for d in data])
    mine = names((one for d in data for one in vertical_plan.record_ids(d)), settings.salt.encode(), identity.edge)
    plan = vertical_plan.privacy_plan(run, number)
    log.info("%s: %d records, %s, z = %.4g", identity.edge, len(x), plan.declared, plan.noise_multiplier)
    return Party(
        identity.edge, number, vertical_plan.protocol(run), x, mine,
        vertical_plan.party_model(run, tuple(x.shape[1:])), EmbeddingReleaser(plan, ledger, Random(), len(x)),
        vertical_plan.regularization(run, number),
    )  # fmt: skip
