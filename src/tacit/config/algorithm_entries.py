"""Algorithms by name: built-in names, and entries of a user's own.

Idea. A run file names its algorithm, and this module finds the object of that name. A built-in name
is registered in `BUILT_IN`. A name with a colon, "module:Name", is an entry of a user's own code,
as everywhere in a run file. Both are loaded by that text alone, so config imports no algorithm.

An object must be a class with `settings`, the class of its [algorithm] section
(`tacit.algorithms.base.algorithm`).
"""

from __future__ import annotations

import importlib
import math
import warnings
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Protocol

from pydantic import PydanticUndefinedAnnotation, PydanticUserError, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

from tacit.config.algorithm_contract import AlgorithmSection
from tacit.config.sections import Edges
from tacit.errors import ConfigError
from tacit.user_code import load_entry

_MAPA = "tacit.algorithms.mapa.mapa:MapaAlgorithm"
_FEDASYNC = "tacit.algorithms.fedasync.mixing:FedAsyncAlgorithm"
_GOSSIP = "tacit.algorithms.gossip.gossip_algorithm:GossipAlgorithm"
BUILT_IN = {
    "mapa": _MAPA,
    "audp": _MAPA,
    "asgd": _MAPA,
    "csgd": _MAPA,
    "fedasync": _FEDASYNC,
    "fedavg": "tacit.algorithms.fedasync.fedavg:FedAvgAlgorithm",
    "fedbuff": "tacit.algorithms.fedasync.fedbuff:FedBuffAlgorithm",
    "sgd": _FEDASYNC,
    "dp-pasgd": "tacit.algorithms.dp_pasgd.averaging:DpPasgdAlgorithm",
    "adp2sgd": _GOSSIP,
    "adpsgd": _GOSSIP,
    "sync": "tacit.algorithms.gossip.gossip_algorithm:SyncAlgorithm",
    "least-squares": "tacit.algorithms.least_squares.least_squares:LeastSquaresAlgorithm",
    "ask": "tacit.algorithms.ask.ask_algorithm:AskAlgorithm",
    "ebm": "tacit.algorithms.ebm.ebm_algorithm:EbmAlgorithm",
    "vafl": "tacit.algorithms.vafl.vafl_algorithm:VaflAlgorithm",
}
_UNLOADED = "tacit.algorithms.own.unloaded:UnloadedAlgorithm"


class HasSettings(Protocol):
    """An algorithm, as far as a run file asks for it."""

    settings: type[AlgorithmSection]


def is_own(name: object) -> bool:
    """Check whether `name` is an entry of a user's own algorithm."""
    return isinstance(name, str) and ":" in name


@cache
def built_in(name: str) -> type[HasSettings]:
    """Return the algorithm of a built-in name."""
    algorithm: type[HasSettings] = _imported(BUILT_IN[name])
    return algorithm


def with_implied(content: Any) -> Any:
    """Return a run file's content with what its built-in algorithm implies where that is left out.

    Also where it is no run file, which is refused later.
    """
    if not isinstance(content, Mapping):
        return content
    section = content.get("algorithm")
    if not isinstance(section, Mapping):
        return content
    name = section.get("name")
    edges = content.get("edges", {})
    workers = edges.get("count", Edges().count) if isinstance(edges, Mapping) else None
    if not (isinstance(name, str) and name in BUILT_IN and isinstance(workers, int)):
        return content
    filled = dict(content)
    for key, implied in built_in(name).settings.implied(workers, section).items():
        stated = filled.get(key, {})
        if isinstance(stated, Mapping):
            filled[key] = {**implied, **stated}
    return filled


def own(entry: str, folder: Path) -> tuple[type[HasSettings], str]:
    """Return the algorithm that `entry` names in `folder`, and the SHA-256 of its code.

    Its module is executed. Raises ConfigError.
    """
    with warnings.catch_warnings():
        # pydantic's warning of a key that hides a name of tacit's own: `_check_settings` refuses it
        warnings.filterwarnings("ignore", "Field name .* shadows an attribute")
        found = load_entry(entry, folder, "algorithm.entry")
    settings = getattr(found.target, "settings", None)
    if not (isinstance(settings, type) and issubclass(settings, AlgorithmSection)):
        raise ConfigError(
            f"algorithm.entry={entry}: is no algorithm: derive a class from ServerAlgorithm, with "
            "settings (a class derived from AlgorithmSettings) and role (one derived from "
            "AlgorithmServer)"
        )
    _check_settings(entry, settings)
    return found.target, found.digest


def _check_settings(entry: str, settings: type[AlgorithmSection]) -> None:
    """Raise ConfigError for a class of settings that cannot be one."""
    where = f"algorithm.entry={entry}: {settings.__name__}"
    try:
        settings.model_rebuild()
    except (PydanticUndefinedAnnotation, PydanticUserError) as error:
        raise ConfigError(f"{where}: {str(error).splitlines()[0]}") from error
    inherited = next(kind for kind in settings.__mro__ if kind.__module__.startswith("tacit."))
    assert issubclass(inherited, AlgorithmSection)
    for key, field in settings.model_fields.items():
        kept = inherited.model_fields.get(key)
        hides = hasattr(inherited, key) if kept is None else kept.annotation != field.annotation
        if hides:
            raise ConfigError(f"{where}: {key}: is a name of tacit's own; name yours otherwise")
    _check_searched(where, settings)


def _check_searched(where: str, settings: type[AlgorithmSection]) -> None:
    """Raise ConfigError where `searched` is not a table of keys with bounds."""
    searched: object = settings.searched
    if not isinstance(searched, Mapping):
        raise ConfigError(
            f"{where}: searched={searched!r}: write a dict of keys with their bounds, as "
            '{"learning_rate": (0.01, 1.0)}'
        )
    if unknown := sorted(set(map(str, searched)) - set(settings.model_fields)):
        raise ConfigError(f"{where}: searched: {unknown[0]}: there is no key of this name")
    for key, bounds in searched.items():
        if not _are_bounds(bounds):
            raise ConfigError(
                f"{where}: searched: {key}={bounds!r}: give two numbers, the least and the most, "
                "with 0 < least < most"
            )


def _are_bounds(bounds: object) -> bool:
    """Check whether `bounds` are two numbers between which there is a logarithmic scale."""
    if not (isinstance(bounds, tuple | list) and len(bounds) == 2):
        return False
    if not all(isinstance(bound, int | float) for bound in bounds):
        return False
    least, most = map(float, bounds)
    return 0 < least < most < math.inf


def other_code(entry: str, stated: str, digest: str) -> str:
    """Return the complaint that the code of `entry` here is not what a run was begun with."""
    return (
        f"algorithm.code={stated}: the code of {entry} here has SHA-256 {digest}; put the run's "
        "code back, or begin another run"
    )


def settings_classes() -> Iterator[type[AlgorithmSection]]:
    """Yield the class of each built-in section, once."""
    yield from dict.fromkeys(built_in(name).settings for name in BUILT_IN)


def algorithm_section(content: Any, folder: Path, *, own_code: bool) -> AlgorithmSection:
    """Return the [algorithm] section that `content` states.

    own_code: whether a user's own algorithm may be loaded, and its settings checked. If not, what
    the section states is taken as it is. Raises ValidationError, and ConfigError as `own`.
    """
    if isinstance(content, AlgorithmSection):
        return content
    if not isinstance(content, dict):
        raise ValueError("a section was expected")
    stated_as_entry = "entry" in content
    if stated_as_entry:
        if "name" in content:
            raise ValueError("name and entry: state one of them")
        content = {"name": content["entry"]} | {
            key: value for key, value in content.items() if key != "entry"
        }
    name = content.get("name")
    if stated_as_entry and not is_own(name):
        raise ConfigError(
            f'algorithm.entry={name!r}: expected "module:Algorithm", of a module beside the run '
            "file"
        )
    if is_own(name):
        return _own_section(content, folder, own_code=own_code)
    if not isinstance(name, str) or name not in BUILT_IN:
        raise _complaint(content, name)
    return _read(built_in(name), content)


def _own_section(content: dict[str, Any], folder: Path, *, own_code: bool) -> AlgorithmSection:
    unloaded: type[HasSettings] = _imported(_UNLOADED)
    if not own_code:
        return _read(unloaded, content)
    try:
        algorithm, digest = own(content["name"], folder)
    except ConfigError:
        # A site needs none of the code where the run file states what its edge computes.
        if "edge" in content:
            return _read(unloaded, content)
        raise
    stated = content.get("code", digest)
    if stated != digest:
        raise ConfigError(other_code(content["name"], stated, digest))
    section = _read(algorithm, content | {"code": digest})
    with_rule = section.with_rule(folder)
    if with_rule is not None and with_rule != section.as_stated():
        return _read(algorithm, with_rule)
    return section


def _read(algorithm: type[HasSettings], content: dict[str, Any]) -> AlgorithmSection:
    return algorithm.settings.model_validate(content)


def _imported(entry: str) -> Any:
    module, _, name = entry.partition(":")
    return getattr(importlib.import_module(module), name)


def _complaint(content: dict[str, Any], name: object) -> ValidationError:
    if name is None:
        kind = PydanticCustomError(
            "missing", "Field required; or entry, for an algorithm of your own"
        )
    else:
        kind = PydanticCustomError(
            "unknown_algorithm",
            'is not known; use one of: {known}, or entry = "module:Algorithm" for your own',
            {"known": ", ".join(f"'{known}'" for known in BUILT_IN)},
        )
    line: InitErrorDetails = {"type": kind, "loc": ("name",), "input": name if name else content}
    return ValidationError.from_exception_data("algorithm", [line])
