"""docs/asyncapi.yaml is what the code says, and what AsyncAPI 3 takes."""

from __future__ import annotations

import gzip
import json
import re
from typing import Any

import jsonschema
import yaml

from tests.conftest import ROOT
from tools import asyncapi

SCHEMA = ROOT / "tests" / "kept" / "asyncapi-3.0.0.json.gz"


def document() -> Any:
    return yaml.safe_load(asyncapi.DOCUMENT.read_text(encoding="utf-8"))


def test_the_file_is_what_the_code_says() -> None:
    written = asyncapi.DOCUMENT.read_text(encoding="utf-8")
    assert written == asyncapi.written(), "say: python -m tools.asyncapi"


def test_it_is_an_asyncapi_3_document() -> None:
    schema = json.loads(gzip.decompress(SCHEMA.read_bytes()))
    jsonschema.validate(document(), schema)
    wrong = document()
    wrong["operations"]["sendUp"]["action"] = "publish"  # as AsyncAPI 2 has it
    assert list(jsonschema.Draft7Validator(schema).iter_errors(wrong))


def test_the_topics_that_can_be_published_to_are_the_channels() -> None:
    topics = json.loads((ROOT / "tests" / "snapshots" / "topics.json").read_text())
    forms = {
        re.sub(r"\b[A-E]\b", "[^/]+", topic)
        for topic in topics.values()
        if not set("+#") & set(topic)
    }
    addresses = [each["address"] for each in document()["channels"].values()]
    for form in forms:
        assert any(re.fullmatch(form, address) for address in addresses), form
    for address in addresses:
        assert any(re.fullmatch(form, address) for form in forms), address


def test_every_kind_of_message_that_travels_is_on_a_channel() -> None:
    content = document()
    on_channels = {
        name for each in content["channels"].values() for name in each.get("messages", ())
    }
    assert on_channels == set(content["components"]["messages"])
    assert len(on_channels) == 17
