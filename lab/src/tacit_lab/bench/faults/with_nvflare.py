"""NVFlare's deployment: provisioned kits, start.sh on every machine, and a job by the FLARE API."""

from __future__ import annotations

import contextlib
import json
import re
import shutil
import subprocess
from dataclasses import asdict
from pathlib import Path
from typing import Any

from tacit_services.children.processes import free_port

from tacit_lab.bench.faults import fault_plan, site_rows
from tacit_lab.bench.faults.federation import RunFolders
from tacit_lab.bench.faults.peer_federation import SERVER, PeerFederation, answer_of
from tacit_lab.bench.faults.process_tree import ProcessTree, plain_environment
from tacit_lab.checkout import ROOT

BIN = ROOT / "out" / "peers" / "faults-nvflare" / "bin"
HERE = Path(__file__).parent
# Certificates are for a name, and all machines are this one.
NAME = "localhost"
_USER = "admin@bench.org"
_PROJECT = """
api_version: 3
name: faults
description: the bench's federation
participants:
  - {{name: {server}, type: server, org: bench, fed_learn_port: {port}}}
{sites}
  - {{name: {user}, type: admin, org: bench, role: project_admin}}
builders:
  - path: nvflare.lighter.impl.workspace.WorkspaceBuilder
    args: {{template_file: [master_template.yml]}}
  - path: nvflare.lighter.impl.static_file.StaticFileBuilder
    args: {{config_folder: config}}
  - path: nvflare.lighter.impl.cert.CertBuilder
  - path: nvflare.lighter.impl.signature.SignatureBuilder
"""
_SITE = """\
  - {{name: site-{site}, type: client, org: bench, connect_to: {{host: {host}, port: {port}}}}}"""
_ACCEPTED = re.compile(r"Aggregated \d+/\d+ results")


class NvflareFederation(PeerFederation):
    """The server's kit is the server's machine; a client's kit is a site's."""

    def __init__(self, place: RunFolders) -> None:
        self._port = free_port()
        super().__init__(place, f"127.0.0.1:{self._port}")
        site_rows.write(place.folder, place.task, place.seed)
        self._kits = self._provisioned()
        shutil.move(self._kits / NAME, place.server / "kit")
        self._server_kit = place.server / "kit"
        self._set_server()
        self._job = self._exported()
        self._last_log = ""
        self.trees[SERVER] = self._tree("server", self._server_kit, {})
        for site in range(place.task.sites):
            rows = {"FAULTS_ROWS": str(place.folder / f"site{site}.npz")}
            self.trees[str(site)] = self._tree(f"site-{site}", self._kits / f"site-{site}", rows)

    def _provisioned(self) -> Path:
        """Write the project, provision it, and return the folder of kits."""
        links = enumerate(link.address.rpartition(":")[2] for link in self.links)
        sites = "\n".join(_SITE.format(site=site, host=NAME, port=port) for site, port in links)
        project = self.place.folder / "project.yml"
        text = _PROJECT.format(server=NAME, port=self._port, sites=sites, user=_USER)
        project.write_text(text, encoding="utf-8")
        workspace = self.place.folder / "kits"
        subprocess.run(
            [
                str(BIN / "nvflare"),
                "provision",
                "-p",
                str(project),
                "-w",
                str(workspace),
                "--force",
            ],
            cwd=self.place.folder,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return workspace / "faults" / "prod_00"

    def _set_server(self) -> None:
        """Write local/resources.json: the scaled timeout, and folders of this run's own."""
        default = self._server_kit / "local" / "resources.json.default"
        settings = json.loads(default.read_text(encoding="utf-8"))
        timeout = fault_plan.load().used("nvflare", "heart_beat_timeout of the server")
        settings["servers"][0]["heart_beat_timeout"] = timeout
        storage = settings["snapshot_persistor"]["args"]["storage"]["args"]
        storage["root_dir"] = str(self.place.server / "snapshot-storage")
        for component in settings["components"]:
            if component["id"] == "job_manager":
                component["args"]["uri_root"] = str(self._jobs)
        text = json.dumps(settings, indent=2)
        (self._server_kit / "local" / "resources.json").write_text(text, encoding="utf-8")

    @property
    def _jobs(self) -> Path:
        return self.place.server / "jobs-storage"

    def _exported(self) -> Path:
        folder = self.place.server / "job"
        folder.mkdir()
        for name in ("numpy_training.py", "nvflare_client.py", "nvflare_person.py"):
            shutil.copy(HERE / name, folder / name)
        arguments = ["export", str(folder), json.dumps(asdict(self.place.task))]
        subprocess.run(
            [str(BIN / "python"), "nvflare_person.py", *arguments],
            cwd=folder,
            env=self._environment(),
            stdout=subprocess.DEVNULL,
            check=True,
        )
        return folder

    def _environment(self, **more: str) -> dict[str, str]:
        variables = plain_environment(NO_PROXY="localhost", **more)
        return variables | {"PATH": f"{BIN}:{variables['PATH']}"}

    def _tree(self, name: str, kit: Path, more: dict[str, str]) -> ProcessTree:
        log = self.place.folder / f"{name}.log"
        return ProcessTree(
            ["bash", str(kit / "startup" / "start.sh")], kit, self._environment(**more), log
        )

    def begin(self) -> None:
        """Start all, submit the job, and wait for its first round."""
        self.start(SERVER)
        self.until(lambda: "Server started" in self.server().text, "nvflare: the server")
        for site in range(self.place.task.sites):
            self.start(str(site))
        joined = re.compile(r"Client: New client site-\d")
        self.until(
            lambda: len(set(joined.findall(self.server().text))) == self.place.task.sites,
            "nvflare: the clients",
        )
        self.submit()
        self.until(lambda: "Round 0 started" in self._log(), "nvflare: the first round")

    def submit(self) -> None:
        """Submit the job, after an abort where the one before has not ended."""
        kit = str(self._kits / _USER)
        if self.run_id and not self.ended():
            self._asked("abort", kit, self.run_id)
        self._last_log = ""
        self.run_id = self._asked("submit", kit, str(self._job / "faults"))
        self.status = ""

    def _asked(self, *arguments: str) -> str:
        command = [str(BIN / "python"), str(self._job / "nvflare_person.py"), *arguments]
        return str(answer_of(command, self._environment())["answer"])

    @property
    def _archive(self) -> Path:
        """What the server keeps of a job that is over, its model among it."""
        return self._jobs / self.run_id / "workspace"

    def _log(self) -> str:
        """Return the job's log; it moves into the archive when the job is over."""
        path = self._server_kit / self.run_id / "log.txt"
        with contextlib.suppress(FileNotFoundError):
            self._last_log = path.read_text(encoding="utf-8", errors="replace")
        return self._last_log

    def updates(self) -> int:
        """Return the results that the job has aggregated."""
        return len(_ACCEPTED.findall(self._log()))

    def results(self) -> bool:
        """Return whether the finished job's workspace is in the job store."""
        return "Finished FedAvg" in self._log() and self._archive.exists()

    def asked_status(self) -> str:
        """Return the job's state, by the FLARE API."""
        return self._asked("status", str(self._kits / _USER), self.run_id)

    def ended(self) -> bool:
        """Return whether it says FINISHED."""
        return self.status.startswith("FINISHED")

    def is_dead(self, name: str) -> bool:
        """Each kit starts itself again (sub_start.sh)."""
        return False

    def by_hand(self) -> str:
        """Submit the job again."""
        self.submit()
        return "resubmit the job"

    def lost(self) -> int:
        """Return the results that no round has taken: those asked for, and not aggregated."""
        log = self._log()
        rounds = len(re.findall(r"Round \d+ started", log))
        return max(0, rounds * self.place.task.sites - len(_ACCEPTED.findall(log)))

    def evidence(self) -> dict[str, Any]:
        """Return the rounds of the job that ended."""
        return {"rounds": len(re.findall(r"Round \d+ started", self._log()))}
