"""The JSON schema of a run file with a built-in algorithm."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from pydantic import Field, create_model

from tacit.config.algorithm_entries import settings_classes
from tacit.config.run_file import RunFile


def json_schema() -> dict[str, Any]:
    """Return the schema, with which an editor checks and completes TOML."""
    union: Any = reduce(or_, settings_classes())
    section = union, Field(discriminator="name")
    whole = create_model("RunFile", __base__=RunFile, __doc__=RunFile.__doc__, algorithm=section)
    return whole.model_json_schema()
