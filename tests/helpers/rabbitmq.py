"""A real RabbitMQ of one node, Debian's, with its MQTT plugin, on loopback."""

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
    if not Path(SCRIPT).exists():
        need("rabbitmq-server")
    folder = Path(tempfile.mkdtemp(prefix="rabbitmq-"))
    port, distribution, mapper = (free_port() for _ in range(3))
    definitions = rabbitmq_rules.definitions([run], edges, peers=False)
    (folder / "definitions.json").write_text(definitions)
    (folder / "enabled_plugins").write_text("[rabbitmq_mqtt].")
    conf = _CONF.format(host=HOST, port=port, bundle=bundle, folder=folder)
    (folder / "rabbitmq.conf").write_text(conf)
    settings = {
        "HOME": str(folder),  # of the cookie
        "RABBITMQ_NODENAME": f"tacit-{port}@localhost",
        "RABBITMQ_MNESIA_BASE": str(folder / "data"),
        "RABBITMQ_LOG_BASE": str(folder / "log"),
        "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq"),
        "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "enabled_plugins"),
        "RABBITMQ_CONF_ENV_FILE": os.devnull,
        "RABBITMQ_DIST_PORT": str(distribution),
        "ERL_EPMD_PORT": str(mapper),
        "ERL_EPMD_ADDRESS": HOST,
        "RUNNING_UNDER_SYSTEMD": "true",  # without a shell between us and the node
        "RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS": "+S 2:2 +sbwt none",
    }
    variables = [f"{name}={value}" for name, value in settings.items()]
    server = RabbitMq(["env", *variables, SCRIPT], port, folder / "log.txt")
    try:
        server.start()
        yield server
    finally:
        _ended(server, folder, mapper)


def _ended(server: RabbitMq, folder: Path, mapper: int) -> None:
    """End the node, and then the daemon that it has started to name its port."""
    server.kill()
    command = [need("epmd"), "-port", str(mapper), "-kill"]
    subprocess.run(command, capture_output=True, timeout=60, check=False)
    shutil.rmtree(folder, ignore_errors=True)
