"""A group of options as one dataclass: it stands once, and commands have it as one parameter.

@dataclass
class Reach:
    url: Annotated[str | None, typer.Option(help="…")] = None

def show(run: str, *, reach: Reach) -> None: ...

show = option_group(show, "reach", Reach)
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator
from dataclasses import fields
from typing import Any, get_type_hints


def option_group(command: Callable[..., Any], name: str, group: type[Any]) -> Callable[..., Any]:
    """Return a command with an option for each field of `group` in place of its parameter `name`.

    group: a dataclass whose fields have defaults, and are annotated as a command's options are.
    """
    options = list(_options(group))
    signature = inspect.signature(command, eval_str=True)
    parameters: list[inspect.Parameter] = []
    for parameter in signature.parameters.values():
        parameters += options if parameter.name == name else [parameter]

    def commanded(**values: Any) -> Any:
        grouped = group(**{option.name: values.pop(option.name) for option in options})
        return command(**values, **{name: grouped})

    functools.update_wrapper(commanded, command)
    commanded.__name__ = command.__name__.lstrip("_")
    commanded.__annotations__ = {each.name: each.annotation for each in parameters}
    own = vars(commanded)
    del own["__wrapped__"]  # whose signature is another one
    own["__signature__"] = signature.replace(parameters=parameters)
    return commanded


def _options(group: type[Any]) -> Iterator[inspect.Parameter]:
    annotations = get_type_hints(group, include_extras=True)  # of its base classes, too
    for field in fields(group):
        kind = inspect.Parameter.KEYWORD_ONLY
        yield inspect.Parameter(
            field.name, kind, default=field.default, annotation=annotations[field.name]
        )
