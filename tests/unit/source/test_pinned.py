"""What an image or .venv is made of is named by its digest: base images, servers, every wheel."""

from __future__ import annotations

import re

import pytest
import yaml

from tests.conftest import ROOT

DIGEST = r"[a-z-]+:[0-9][a-z0-9.-]*@sha256:[0-9a-f]{64}"
LOCKS = ["requirements-torch.txt", *sorted(path.name for path in ROOT.glob("requirements*.lock"))]


def test_every_image_begins_with_one_that_a_digest_names() -> None:
    text = (ROOT / "docker/Dockerfile").read_text()
    begun = set(re.findall(r"^FROM (\S+)", text, re.MULTILINE))
    stages = set(re.findall(r"^FROM \S+ AS (\S+)", text, re.MULTILINE))
    assert begun - stages == {"${TACIT_PYTHON_IMAGE}"}
    assert re.search(rf"^ARG TACIT_PYTHON_IMAGE={DIGEST}$", text, re.MULTILINE)


def test_every_server_in_compose_is_one_that_a_digest_names() -> None:
    services = yaml.safe_load((ROOT / "compose.yaml").read_text())["services"]
    images = {service["image"] for service in services.values() if "image" in service}
    foreign = {image for image in images if not image.startswith("tacit-")}
    assert len(foreign) == 2
    for image in foreign:
        assert re.fullmatch(rf"\$\{{TACIT_[A-Z]+_IMAGE:-{DIGEST}\}}", image), image


@pytest.mark.parametrize("name", LOCKS)
def test_every_wheel_has_its_hashes(name: str) -> None:
    text = (ROOT / name).read_text().replace("\\\n", " ")
    entries = [
        line for line in text.splitlines() if "==" in line and not line.startswith((" ", "#"))
    ]
    assert entries
    assert [line for line in entries if "--hash=sha256:" not in line] == []


def test_each_image_has_its_group_of_the_lock() -> None:
    lock = (ROOT / "requirements.lock").read_text()
    assert re.findall("^# end of (.*)$", lock, re.MULTILINE) == ["edge", "aggregator", "run", "dev"]
    assert lock.endswith("# end of dev\n")
    text = (ROOT / "docker/Dockerfile").read_text()
    mounts = re.findall(r"from=locks,source=/(\w+)\.lock", text)
    assert mounts == ["edge", "aggregator", "run"]
    assert f"for group in {' '.join(mounts)};" in text
    assert 'sed "/^# end of $group\\$/q" requirements.lock >/$group.lock' in text


def test_nothing_is_installed_into_an_image_without_a_hash() -> None:
    installs = [
        line
        for name in ("docker/Dockerfile", "docker/install-torch")
        for line in (ROOT / name).read_text().replace("\\\n", " ").splitlines()
        if re.search(r"(pip|\"\$@\").* (install|wheel) ", line) and not line.startswith("#")
    ]
    assert len(installs) >= 8
    free = ("--require-hashes --no-deps", "--no-deps --no-index", "--no-build-isolation --no-deps")
    looked = [line for line in installs if "--dry-run" not in line]
    assert [line for line in looked if not any(exemption in line for exemption in free)] == []
