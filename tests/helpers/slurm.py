"""A real cluster of one node, Debian's Slurm, on loopback."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.helpers.servers import HOST, Server, free_port, need, wait_for

_CONF = """\
ClusterName=tacit
MailProg=/bin/true
SlurmctldHost={name}({host})
SlurmctldPort={controller}
SlurmdPort={daemon}
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket,cred_expire={expires}
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
MpiDefault=none
SchedulerParameters=batch_sched_delay=1,sched_interval=5
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
SlurmdParameters=config_overrides
ReturnToService=2
KillWait=20
NodeName=here NodeHostname={name} NodeAddr={host} CPUs=8 RealMemory=64000 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP
"""
_EXPIRES = 5  # seconds that a requeued job waits: by default 120


class Slurm:
    """A cluster of one node; jobs are root's, as the tests are."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._environment = os.environ | {"SLURM_CONF": str(folder / "slurm.conf")}

    def run(self, command: str, *arguments: str, **variables: str) -> str:
        """Run a command of Slurm with these variables; return what it prints."""
        completed = subprocess.run(
            [need(command), *arguments],
            env=self._environment | variables,
            cwd=self.folder,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        assert completed.returncode == 0, f"{command}: {completed.stderr}"
        return completed.stdout

    def submit(self, script: Path, variables: Mapping[str, str], *options: str) -> str:
        """Submit a batch script; return the number of its job."""
        return self.run("sbatch", "--parsable", *options, str(script), **variables).strip()

    def job(self, number: str) -> dict[str, str]:
        """Return what Slurm knows of a job, by the names that `scontrol show job` has."""
        listed = self.run("scontrol", "show", "job", "--oneliner", number)
        return dict(part.split("=", 1) for part in listed.split() if "=" in part)


@contextmanager
def slurm() -> Iterator[Slurm]:
    """Yield a cluster of one node; all of its jobs have ended when the block is left."""
    controller, daemon = need("slurmctld"), need("slurmd")
    munged = need("munged")
    folder = Path(tempfile.mkdtemp(prefix="slurm-"))
    ports = free_port(), free_port()
    conf = _CONF.format(
        host=HOST,
        name=os.uname().nodename,
        folder=folder,
        controller=ports[0],
        daemon=ports[1],
        expires=_EXPIRES,
    )
    (folder / "slurm.conf").write_text(conf)
    for name in ("state", "spool"):
        (folder / name).mkdir()
    key = folder / "munge.key"
    key.touch(0o600)
    key.write_bytes(os.urandom(128))
    options = ["-f", str(folder / "slurm.conf"), "-D"]
    try:
        with ExitStack() as beside:
            _munge(munged, folder, beside)
            for port, command in ((ports[0], [controller]), (ports[1], [daemon, "-N", "here"])):
                name = Path(command[0]).name
                server = Server([*command, *options], port, folder / f"{name}.out")
                beside.callback(server.kill)
                server.start()
            cluster = Slurm(folder)
            wait_for(lambda: "idle" in cluster.run("sinfo", "-h", "-o", "%T"))
            beside.callback(_cancelled, cluster)
            yield cluster
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _munge(munged: str, folder: Path, beside: ExitStack) -> None:
    """Start the daemon that signs what Slurm's parts say to each other."""
    socket = folder / "munge.socket"
    process = subprocess.Popen(
        [
            munged,
            "--foreground",
            "--force",
            f"--socket={socket}",
            f"--key-file={folder / 'munge.key'}",
            f"--pid-file={folder / 'munge.pid'}",
            f"--log-file={folder / 'munge.log'}",
            f"--seed-file={folder / 'munge.seed'}",
        ],
        stderr=subprocess.DEVNULL,
    )
    beside.callback(process.wait)
    beside.callback(process.kill)
    wait_for(socket.exists)


def _cancelled(cluster: Slurm) -> None:
    """End all jobs of the cluster."""
    cluster.run("scancel", "--user=root")
    wait_for(lambda: not cluster.run("squeue", "-h"))
