"""The chart of deploy/helm: what it makes is valid, and keeps the rules of a restricted namespace."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT
from tests.helpers.servers import need

CHART = ROOT / "deploy" / "helm" / "tacit"
VALUES = sorted((CHART / "ci").glob("*.yaml"))
TOOLS = ROOT / "out" / "kubernetes"  # by `make out/kubernetes/helm`
VERSIONS = ("1.32.0", "1.35.0", "1.37.0")
IMAGE = r"[a-z0-9./-]+@sha256:[0-9a-f]{64}"
Document = dict[str, Any]


def helm(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run helm."""
    binary = TOOLS / "helm"
    command = str(binary) if binary.exists() else need("helm")
    return subprocess.run([command, *arguments], capture_output=True, text=True, check=False)


@pytest.fixture(scope="module", params=VALUES, ids=lambda path: path.stem)
def rendered(request: pytest.FixtureRequest) -> tuple[str, list[Document]]:
    """Return what the chart makes of one of its value files: the text, and its documents."""
    completed = helm("template", "trial", str(CHART), "-f", str(request.param))
    assert completed.returncode == 0, completed.stderr
    documents = [each for each in yaml.safe_load_all(completed.stdout) if each]
    return completed.stdout, documents


def pods(documents: list[Document]) -> Iterator[Document]:
    """Yield the specification of each pod."""
    for each in documents:
        if "template" in each.get("spec", {}):
            yield each["spec"]["template"]["spec"]


def containers(documents: list[Document]) -> Iterator[Document]:
    """Yield each container, also those that come before."""
    for pod in pods(documents):
        yield from [*pod.get("initContainers", []), *pod["containers"]]


def labels(documents: list[Document]) -> list[Document]:
    """Return the labels of each workload's pods."""
    rendered = [each["spec"] for each in documents if "template" in each.get("spec", {})]
    return [spec["template"]["metadata"]["labels"] for spec in rendered]


def selected(documents: list[Document], kind: str, key: str) -> list[Document]:
    """Return what each document of this kind selects."""
    return [each["spec"][key]["matchLabels"] for each in documents if each["kind"] == kind]


def test_its_servers_are_those_of_compose_and_its_settings_those_of_docker() -> None:
    images = yaml.safe_load((CHART / "values.yaml").read_text())["images"]
    compose = (ROOT / "compose.yaml").read_text()
    for name in ("mosquitto", "redis"):
        assert images[name]["digest"] in compose
    for path in (CHART / "files").iterdir():
        assert path.read_bytes() == (ROOT / "docker" / path.name).read_bytes(), path.name


@pytest.mark.exhaustive
@pytest.mark.parametrize("values", VALUES, ids=lambda path: path.stem)
def test_helm_finds_nothing_wrong(values: Path) -> None:
    completed = helm("lint", str(CHART), "--strict", "-f", str(values))
    assert completed.returncode == 0, completed.stdout + completed.stderr


@pytest.mark.exhaustive
def test_a_wrong_image_is_refused() -> None:
    host = str(CHART / "ci" / "host.yaml")
    tagged = helm("template", "x", str(CHART), "-f", host, "--set", "images.aggregator.digest=v1")
    assert "expected sha256:" in tagged.stderr
    missing = helm("template", "x", str(CHART))
    assert "images.aggregator.repository: name it" in missing.stderr


@pytest.mark.exhaustive
@pytest.mark.parametrize("version", VERSIONS)
def test_it_is_valid_for_the_api(
    rendered: tuple[str, list[Document]], version: str, tmp_path: Path
) -> None:
    binary = TOOLS / "bin" / "kubernetes-validate"
    command = [str(binary) if binary.exists() else need("kubernetes-validate"), "--strict"]
    for text, valid in (
        (rendered[0], True),
        (rendered[0].replace("containers:", "container:"), False),
    ):
        file = tmp_path / f"{valid}.yaml"
        file.write_text(text)
        completed = subprocess.run(
            [*command, "-k", version, str(file)], capture_output=True, text=True, check=False
        )
        assert (completed.returncode == 0) == valid, completed.stdout + completed.stderr


@pytest.mark.exhaustive
def test_no_container_has_a_privilege(rendered: tuple[str, list[Document]]) -> None:
    for pod in pods(rendered[1]):
        security = pod["securityContext"]
        assert security["runAsNonRoot"] is True
        assert security["runAsUser"] > 0
        assert security["seccompProfile"] == {"type": "RuntimeDefault"}
        assert pod["automountServiceAccountToken"] is False
        assert not {"hostNetwork", "hostPID", "hostIPC"} & set(pod)
        kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
        assert kinds <= {"secret", "configMap", "emptyDir", "persistentVolumeClaim"}
    for container in containers(rendered[1]):
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert not any("hostPort" in port for port in container.get("ports", []))


@pytest.mark.exhaustive
def test_each_container_has_limits_and_probes_and_an_image_by_digest(
    rendered: tuple[str, list[Document]],
) -> None:
    for container in containers(rendered[1]):
        assert {"cpu", "memory"} <= set(container["resources"]["limits"])
        assert {"cpu", "memory"} <= set(container["resources"]["requests"])
        assert re.fullmatch(IMAGE, container["image"])
    for pod in pods(rendered[1]):
        for container in pod["containers"]:
            assert {"readinessProbe", "livenessProbe"} <= set(container)


@pytest.mark.exhaustive
def test_each_workload_has_a_budget_for_disruptions_and_is_reached_by_those_it_names(
    rendered: tuple[str, list[Document]],
) -> None:
    workloads = labels(rendered[1])
    budgets = selected(rendered[1], "PodDisruptionBudget", "selector")
    policies = selected(rendered[1], "NetworkPolicy", "podSelector")
    services = [each["spec"]["selector"] for each in rendered[1] if each["kind"] == "Service"]
    for each in workloads:
        assert each in budgets
        assert each in policies
        assert each in services
    everything = [each for each in rendered[1] if each["metadata"]["name"].endswith("-all")]
    assert [each["spec"]["policyTypes"] for each in everything] == [["Ingress", "Egress"]]
    assert "ingress" not in everything[0]["spec"]
    assert "egress" not in everything[0]["spec"]


@pytest.mark.exhaustive
def test_what_must_outlive_a_pod_is_on_volumes_that_nothing_deletes(
    rendered: tuple[str, list[Document]],
) -> None:
    sets = [each["spec"] for each in rendered[1] if each["kind"] == "StatefulSet"]
    assert len(sets) == len(list(pods(rendered[1])))
    for each in sets:
        assert each["volumeClaimTemplates"]
        keeps = each["persistentVolumeClaimRetentionPolicy"]
        assert keeps == {"whenDeleted": "Retain", "whenScaled": "Retain"}
        names = {claim["metadata"]["name"] for claim in each["volumeClaimTemplates"]}
        mounts = each["template"]["spec"]["containers"][0]["volumeMounts"]
        assert names <= {mount["name"] for mount in mounts}


@pytest.mark.exhaustive
def test_no_secret_is_in_it(rendered: tuple[str, list[Document]]) -> None:
    assert not [each for each in rendered[1] if each["kind"] == "Secret"]
    for container in containers(rendered[1]):
        for variable in container.get("env", []):
            assert not re.search("TOKEN$|PASSWORD|SALT", variable["name"])
