"""`tacit aggregator`: one run's single writer, with its REST interface."""

from __future__ import annotations

import sys
from contextlib import closing

import torch

from tacit.config import RunFile
from tacit_services.aggregator.hosted_run import HostedRun, Loaded
from tacit_services.settings import AggregatorSettings
from tacit_services.signals import stopping
from tacit_services.transport import http_server
from tacit_services.transport.address import bind


def main(settings: AggregatorSettings, run: RunFile | None = None) -> None:
    """Serve one run to its end, write its results, and, with `linger`, go on answering REST.

    run: of a federation; None: the run file that `settings` name. Raises TacitError.
    """
    stop = stopping()
    torch.set_num_threads(settings.threads)
    # Hashing, sockets and tensors let go of the interpreter lock all the time, and may wait 5 ms to
    # have it back.
    sys.setswitchinterval(1e-4)
    tls = settings.tls()  # a wrong setting is better reported before the data is loaded
    loaded = Loaded.of(settings, run)
    listener = bind(settings.http)
    hosted = HostedRun(settings, loaded, tls)
    server = http_server.HttpServer(hosted.app, timeout_graceful_shutdown=1)
    with http_server.in_thread(server, listener, "http"), closing(hosted):
        hosted.serve(stop)
