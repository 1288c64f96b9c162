"""A run over a RabbitMQ of three nodes, of which one after the other is killed."""

from __future__ import annotations

from pathlib import Path

import pytest
from tacit_services.enrollment.authority import CA, CERTIFICATE, KEY, CertificateAuthority

from tests.helpers.processes import check, deployment, journalled
from tests.helpers.rabbitmq import rabbitmq_cluster
from tests.helpers.run_files import MAPA, toml
from tests.helpers.servers import HOST
from tests.system.test_chaos_kinds import Victims


@pytest.mark.exhaustive
def test_a_run_ends_in_the_model_of_its_journal_while_nodes_die(tmp_path: Path) -> None:
    authority = CertificateAuthority.create(tmp_path / "pki")
    names = ["edge-0", "edge-1"]
    bundle = authority.issue("broker", [HOST])

    def files(name: str) -> dict[str, str]:
        place = authority.issue(name)
        return {
            "TACIT_TLS_CA": str(place / CA),
            "TACIT_TLS_CERT": str(place / CERTIFICATE),
            "TACIT_TLS_KEY": str(place / KEY),
        }

    text = toml(MAPA, run={"updates": 400, "snapshot_every": 40}, edges={"count": 2})
    store = f"sqlite:///{tmp_path}/store.db"
    with rabbitmq_cluster(bundle, "cluster", names, 3) as nodes:
        addresses = ",".join(f"{HOST}:{node.port}" for node in nodes)
        with deployment(tmp_path, text, addresses, store, "cluster") as run:
            journal = str(tmp_path / "journal")
            aggregator = run.aggregator(TACIT_JOURNAL_FILE=journal, **files("aggregator"))
            edges = [run.edge(number, **files(name)) for number, name in enumerate(names)]
            victims = Victims(5, aggregator=[aggregator], node=nodes, edge=edges)
            victims.rage("node", run.accepted, 20, kills=8)
            check(run, run.ended(), journalled(run), range(2))
