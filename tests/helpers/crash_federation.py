"""`tacit serve` and `tacit join`, whose aggregators and workers kill themselves at named points.

`python -m tests.helpers.crash_federation serve|join …` is as tacit's. The points are those of a
plan (`crash_plan`), one for each process of a run. The product has no hooks: a host's forkserver
imports `crash_aggregator`, and a member starts `crash_worker`, which replace functions.
"""

from __future__ import annotations

from tacit_services import python_child
from tacit_services.children import preload
from tacit_services.cli.main import main

_WORKER = "tacit_services.member.run_worker"


def install() -> None:
    """Let this process start children that die."""
    preload._IMPORTED.append("tests.helpers.crash_aggregator")
    command = python_child.command

    def new_command(module: str, *arguments: str) -> list[str]:
        return command("tests.helpers.crash_worker" if module == _WORKER else module, *arguments)

    python_child.command = new_command


if __name__ == "__main__":
    install()
    main()
