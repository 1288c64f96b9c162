"""A software bill of materials of all machines of a run, as CycloneDX 1.6 has it."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

from tacit_services.statements.running_code import RunningCode

_TACIT = "tacit"
_EVIDENCE = uuid.UUID("c0a1a1f4-6a2b-5d0c-8c57-4f1d3b1f52e2")  # the names' space of serial numbers


def sbom(machines: Mapping[str, RunningCode]) -> str:
    """Return the bill of what `machines` have, by name: "host", or an edge's.

    Components that are alike on several machines stand once, with the names of all of them.
    """
    where: dict[tuple[str, str, str], list[str]] = {}
    for machine, code in sorted(machines.items()):
        where.setdefault((_TACIT, code.version, code.files), []).append(machine)
        for name, version in code.libraries.items():
            where.setdefault((name, version, ""), []).append(machine)
    components = [_component(*key, names) for key, names in sorted(where.items())]
    content = json.dumps(components, sort_keys=True)
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_EVIDENCE, content)}",
        "version": 1,
        "metadata": {"component": {"type": "application", "name": _TACIT, "bom-ref": "run"}},
        "components": components,
    }
    return json.dumps(document, indent=1, sort_keys=True) + "\n"


def _component(name: str, version: str, files: str, machines: list[str]) -> dict[str, Any]:
    url = f"pkg:pypi/{quote(name)}@{quote(version)}"
    component: dict[str, Any] = {
        "type": "application" if files else "library",
        "name": name,
        "version": version,
        "purl": url,
        "bom-ref": f"{url}#{files}" if files else url,
        "properties": [{"name": "tacit:machine", "value": machine} for machine in machines],
    }
    if files:
        component["properties"].append({"name": "tacit:files-sha256", "value": files})
    return component
