"""A real RabbitMQ, Debian's, of one node or several, with its MQTT plugin, on loopback."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tacit_services.enrollment import rabbitmq_rules

from tests.helpers.servers import HOST, Server, free_port, need, wait_for

SCRIPT = "/usr/lib/rabbitmq/bin/rabbitmq-server"  # the one on PATH insists on the package's folders
_CONF = """\
listeners.tcp = none
mqtt.listeners.tcp = none
mqtt.listeners.ssl.1 = {host}:{port}
mqtt.allow_anonymous = false
mqtt.ssl_cert_login = true
ssl_cert_login_from = common_name
ssl_options.cacertfile = {bundle}/ca.crt
ssl_options.certfile = {bundle}/tls.crt
ssl_options.keyfile = {bundle}/tls.key
ssl_options.verify = verify_peer
ssl_options.fail_if_no_peer_cert = true
mqtt.prefetch = 16
mqtt.subscription_ttl = 3600000
load_definitions = {folder}/definitions.json
log.console = true
log.console.level = info
"""


class RabbitMq(Server):
    """A RabbitMQ, which takes its time to start."""

    def start(self) -> None:
        """Start the process and return when it serves, after twice the usual patience at most."""
        try:
            super().start()
        except TimeoutError:
            wait_for(self._serves)

    def _answers(self, connection: socket.socket) -> bool:
        return "completed with" in self._log.read_text()  # it listens before it knows its users


@contextmanager
def rabbitmq(bundle: Path, run: str, edges: list[str]) -> Iterator[RabbitMq]:
    """Yield a broker with the certificate in `bundle`, and the rules of this run's edges."""
    with rabbitmq_cluster(bundle, run, edges, 1) as (node,):
        yield node


@contextmanager
def rabbitmq_cluster(
    bundle: Path, run: str, edges: list[str], count: int
) -> Iterator[list[RabbitMq]]:
    """Yield so many nodes of one broker on loopback, as `rabbitmq` does one."""
    if not Path(SCRIPT).exists():
        need("rabbitmq-server")
    folder = Path(tempfile.mkdtemp(prefix="rabbitmq-"))
    mapper = free_port()
    ports = [free_port() for _ in range(count)]
    names = [f"tacit-{port}@localhost" for port in ports]
    definitions = rabbitmq_rules.definitions([run], edges, peers=False)
    (folder / "definitions.json").write_text(definitions)
    (folder / "enabled_plugins").write_text("[rabbitmq_mqtt].")
    nodes = []
    try:
        for port, name in zip(ports, names, strict=True):
            place = folder / str(port)
            place.mkdir()
            conf = _CONF.format(host=HOST, port=port, bundle=bundle, folder=folder)
            (place / "rabbitmq.conf").write_text(conf + (_cluster(names) if count > 1 else ""))
            node = RabbitMq(_command(folder, place, name, mapper), port, place / "log.txt")
            nodes.append(node)
            node.start()
        yield nodes
    finally:
        _ended(nodes, folder, mapper)


def _cluster(names: list[str]) -> str:
    lines = [
        "cluster_formation.peer_discovery_backend = classic_config",
        *(
            f"cluster_formation.classic_config.nodes.{n} = {name}"
            for n, name in enumerate(names, 1)
        ),
        "cluster_partition_handling = pause_minority",
    ]
    return "\n".join([*lines, ""])


def _command(folder: Path, place: Path, name: str, mapper: int) -> list[str]:
    """Return the command of a node with its files in `place`; its cookie is of `folder`."""
    settings = {
        "HOME": str(folder),  # of the cookie
        "RABBITMQ_NODENAME": name,
        "RABBITMQ_MNESIA_BASE": str(place / "data"),
        "RABBITMQ_LOG_BASE": str(place / "log"),
        "RABBITMQ_CONFIG_FILE": str(place / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_DIST_PORT": str(free_port()),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": HOST,
        "RUNNING_UNDER_SYSTEMD": "true",  # without a shell between us and the node
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none",
    }
    return ["env", *(f"{name}={value}" for name, value in settings.items()), SCRIPT]


def _ended(nodes: list[RabbitMq], folder: Path, mapper: int) -> None:
    """End the nodes, and then the daemon that the first has started to name their ports."""
    for node in nodes:
        node.kill()
    command = [need("epmd"), "-port", str(mapper), "-kill"]
    subprocess.run(command, capture_output=True, timeout=60, check=False)
    shutil.rmtree(folder, ignore_errors=True)
