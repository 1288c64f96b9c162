"""`tacit party`: take an identity, load its columns of all people's records, and work.

Until Halt, or for good.
"""

from __future__ import annotations

import logging

import torch

from tacit import datasets
from tacit.algorithms.vafl import vafl_algorithm, vertical_settings
from tacit.algorithms.vafl.party import Party
from tacit.algorithms.vafl.vertical_settings import Vertical
from tacit.privacy.ledger import Ledger
from tacit.privacy.noise.randomness import Random
from tacit.privacy.private_sum.denormals import flush_pool
from tacit_services.identity.folder import Identity
from tacit_services.party.kept import KeptEmbeddings
from tacit_services.party.party_loop import party_loop
from tacit_services.settings import EdgeSettings
from tacit_services.signals import stopping
from tacit_services.worker import last_statement, release_delay
from tacit_services.worker.device import tried
from tacit_services.worker.resources import worker_resources
from tacit_services.worker.serving import loop_settings, serve

log = logging.getLogger("tacit.party")


def main(settings: EdgeSettings) -> None:
    """Run one party to its end. Raises TacitError."""
    stop = stopping()
    torch.set_num_threads(settings.threads)
    flush_pool()
    definition = settings.load_run().define()
    vertical = vertical_settings.vertical(definition)
    with worker_resources(settings, definition, stop) as resources:
        if resources is None:
            return
        role = build_role(settings, vertical, resources.identity, resources.ledger)
        largest = max(vertical.protocol.batch * vertical.settings.width, 1)
        model = definition.build_model()
        needs = loop_settings(settings, definition, model, largest, resources.identity.number)
        turns = resources.turns
        folder = resources.identity.path
        delay = release_delay.of_edge(role, turns, folder, settings.run_id)
        loop = party_loop(role, resources.outbox, needs, turns, delay, serves=settings.serve)
        serve(loop, stop, resources)
        last_statement.write(role, resources, definition, settings.policy)


def build_role(
    settings: EdgeSettings, vertical: Vertical, identity: Identity, ledger: Ledger
) -> Party:
    """Return the role of this identity with its own columns.

    Raises ConfigError, DataError, PrivacyError.
    """
    device = tried(settings.device)
    settings.judge_salt(log, own=vertical.own is not None)
    name = identity.edge
    salt = settings.salt.encode()
    number = identity.number
    random = Random()
    if vertical.own is None:
        splits = datasets.splits(vertical.definition.source.name, settings.data)
        embeddings = KeptEmbeddings(identity.path / "released")
        arguments = vertical, name, number, splits, salt, ledger, random, embeddings, device
        role = vafl_algorithm.party(*arguments)
    else:  # beside the ledger, which outlives the run: so another training pays nothing more
        embeddings = KeptEmbeddings(ledger.beside(f"released-{number}"))
        role = vafl_algorithm.own_party(
            vertical, name, number, salt, ledger, random, embeddings, device
        )
    plan = role.releaser.plan
    log.info("%s: %s, z = %.4g", role.edge, plan.declared, plan.noise_multiplier)
    return role
