"""Plugins: tools and formats found through entry points. Looking imports nothing; loading imports one.

Built-in tools enter by the same door. `AGENTR1_TOOLS`, a list of names separated by commas, restricts what is visible.
"""

import os
from collections.abc import Iterable
from dataclasses import dataclass
from importlib.metadata import EntryPoint, entry_points
from typing import Any

from agentr1_tools.base import BaseTool, check_contract
from agentr1_tools.errors import (
    DuplicateNameError,
    InvalidToolError,
    ToolConfigError,
    UnknownFormatError,
    UnknownToolError,
    did_you_mean,
    listed,
)
from agentr1_tools.formats.base import ToolFormat

TOOL_GROUP = "agentr1.tools"
FORMAT_GROUP = "agentr1.tool_formats"
ALLOW_VARIABLE = "AGENTR1_TOOLS"


@dataclass(frozen=True)
class ToolInfo:
    """What is known of a tool or format before it is imported."""

    name: str
    distribution: str
    version: str
    entry_point: str


def available(allow: Iterable[str] | None = None) -> dict[str, ToolInfo]:
    """Installed tools by name, in the order of their names; nothing is imported.

    allow: the only names to see; without it `AGENTR1_TOOLS` decides, and without that every name is seen.
    Raises DuplicateNameError when two distributions offer one of these names.
    """
    return {name: info for name, (info, _) in _scan(TOOL_GROUP, _allowed(allow)).items()}


def available_formats() -> dict[str, ToolInfo]:
    """Installed formats by name, in the order of their names; nothing is imported."""
    return {name: info for name, (info, _) in _scan(FORMAT_GROUP, None).items()}


def load_tool(name: str, **config: Any) -> BaseTool:
    """Import one tool and configure it: `config` goes to its class or factory.

    A tool that stands for one elsewhere (`remote`, `mcp`) bears that one's name.

    Raises UnknownToolError (with the nearest name), DuplicateNameError, InvalidToolError when the entry point gives no
    tool of that name, and ToolConfigError when it does not take this configuration.
    """
    allowed = _allowed(None)
    found = _scan(TOOL_GROUP, allowed)
    if name not in found:
        hidden = f"; {ALLOW_VARIABLE} allows only {listed(allowed)}" if allowed is not None else ""
        raise UnknownToolError(
            f"no tool {name!r}{did_you_mean(name, found)} (installed: {listed(found)}{hidden}); "
            f"install the package that offers it in the entry-point group {TOOL_GROUP}"
        )
    info, entry_point = found[name]
    tool = _configure(info, _import(info, entry_point), config)
    if tool.name != name and not tool.proxy:
        raise InvalidToolError(
            f"{info.distribution} {info.version} offers {name!r}, but the tool calls itself {tool.name!r}"
        )
    return tool


def get_format(name: str, **config: Any) -> ToolFormat:
    """Import one format and make it: `config` goes to its class (`max_calls=8`).

    Raises UnknownFormatError (with the nearest name), InvalidToolError, and ToolConfigError for a configuration it does
    not take.
    """
    found = _scan(FORMAT_GROUP, None)
    if name not in found:
        raise UnknownFormatError(f"no format {name!r}{did_you_mean(name, found)} (installed: {listed(found)})")
    info, entry_point = found[name]
    make = _import(info, entry_point)
    try:
        made: object = make(**config)
    except TypeError as error:
        raise ToolConfigError(f"format {name} cannot be made from the configuration {config!r}: {error}") from error
    if not isinstance(made, ToolFormat):
        raise InvalidToolError(f"{info.entry_point} of {info.distribution} is no ToolFormat")
    return made


def _allowed(allow: Iterable[str] | None) -> frozenset[str] | None:
    if allow is not None:
        return frozenset(allow)
    listed_names = os.environ.get(ALLOW_VARIABLE)
    return None if listed_names is None else frozenset(part.strip() for part in listed_names.split(",") if part.strip())


def _scan(group: str, allowed: frozenset[str] | None) -> dict[str, tuple[ToolInfo, EntryPoint]]:
    found: dict[str, tuple[ToolInfo, EntryPoint]] = {}
    for entry_point in sorted(entry_points(group=group), key=lambda entry: (entry.name, entry.value)):
        name = entry_point.name
        if allowed is not None and name not in allowed:
            continue
        distribution = entry_point.dist
        info = ToolInfo(
            name,
            distribution.name if distribution else "?",
            distribution.version if distribution else "?",
            entry_point.value,
        )
        other = found.setdefault(name, (info, entry_point))[0]
        if other != info:
            raise DuplicateNameError(
                f"{group}: the name {name!r} is claimed by {other.distribution} {other.version} ({other.entry_point}) "
                f"and by {info.distribution} {info.version} ({info.entry_point}); uninstall one, or leave the name out "
                f"of {ALLOW_VARIABLE}"
            )
    return found


def _import(info: ToolInfo, entry_point: EntryPoint) -> Any:
    try:
        return entry_point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidToolError(
            f"{info.entry_point} of {info.distribution} {info.version} cannot be imported: {error}"
        ) from error


def _configure(info: ToolInfo, made: Any, config: dict[str, Any]) -> BaseTool:
    """Turn what an entry point names (a class, a factory, or a finished tool) into a tool."""
    if isinstance(made, BaseTool):
        if config:
            raise ToolConfigError(
                f"{info.name} is a finished tool and takes no configuration, but got {listed(config)}"
            )
        return check_contract(made)
    if not callable(made):
        raise InvalidToolError(f"{info.entry_point} of {info.distribution} is neither a tool, a class nor a factory")
    try:
        tool: object = made(**config)
    except TypeError as error:
        raise ToolConfigError(f"{info.name} cannot be made from the configuration {config!r}: {error}") from error
    return check_contract(tool)
