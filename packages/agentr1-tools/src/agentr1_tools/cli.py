"""The console script `agentr1-tools`: list the installed tools and formats, describe a tool, call one.

Exit codes: 0 it worked, 1 the call ended in an error result, 2 the command was wrong (an unknown name, bad JSON, a
configuration the tool does not take). Errors are one line on stderr.
"""

import json
import sys
from dataclasses import dataclass
from typing import Annotated, Any, cast

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentr1_tools.arguments import ArgumentChecker
from agentr1_tools.calls import ToolCall
from agentr1_tools.errors import (
    DuplicateNameError,
    InvalidToolError,
    ToolConfigError,
    ToolOpenError,
    UnknownToolError,
)
from agentr1_tools.registry import available, available_formats, load_tool
from agentr1_tools.toolbox import ToolBox

_WRONG_COMMAND = (DuplicateNameError, InvalidToolError, ToolConfigError, ToolOpenError, UnknownToolError)


@dataclass(frozen=True)
class List:
    """List the installed tools and call formats, and the distribution each comes from."""


@dataclass(frozen=True)
class Describe:
    """Show what a tool does, its parameters and its limits."""

    name: tyro.conf.Positional[str]
    """Name of the tool."""
    config: str = "{}"
    """JSON object with which the tool is configured."""


@dataclass(frozen=True)
class Call:
    """Call a tool once and print what a model would read."""

    name: tyro.conf.Positional[str]
    """Name of the tool."""
    arguments: tyro.conf.Positional[str] = "{}"
    """JSON object of the arguments."""
    config: str = "{}"
    """JSON object with which the tool is configured."""


Command = (
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Describe, tyro.conf.subcommand("describe")]
    | Annotated[Call, tyro.conf.subcommand("call")]
)


class _UsageError(ValueError):
    """The command line holds something that cannot be read."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    command = tyro.cli(
        cast(Any, Command), args=argv, prog="agentr1-tools", description="Tools for language-model agents."
    )
    try:
        if isinstance(command, List):
            return _list()
        return _describe(command) if isinstance(command, Describe) else _call(cast(Call, command))
    except (*_WRONG_COMMAND, _UsageError, FileNotFoundError) as error:
        print(f"agentr1-tools: {error}", file=sys.stderr)
        return 2


def _list() -> int:
    for what, found in (("tool", available()), ("format", available_formats())):
        table = Table(what, "distribution", "version", "entry point")
        for info in found.values():
            table.add_row(info.name, info.distribution, info.version, escape(info.entry_point))
        _console().print(table)
    return 0


def _describe(command: Describe) -> int:
    tool = load_tool(command.name, **_json_object(command.config, "--config"))
    info = available()[command.name]
    ArgumentChecker(tool.name, tool.parameters)
    console = _console()
    console.print(f"[bold]{tool.name}[/bold] ({info.distribution} {info.version})", highlight=False)
    console.print(escape(tool.description), highlight=False)
    table = Table("parameter", "schema", "required", "description")
    required = set(tool.parameters.get("required", []))
    properties: dict[str, dict[str, Any]] = tool.parameters.get("properties", {})
    for name, details in properties.items():
        rest = {key: value for key, value in details.items() if key != "description"}
        description = str(details.get("description", ""))
        table.add_row(name, escape(json.dumps(rest)), "yes" if name in required else "no", escape(description))
    console.print(table)
    for name, definition in cast(dict[str, Any], tool.parameters.get("$defs", {})).items():
        console.print(escape(f"{name}: {json.dumps(definition)}"), highlight=False)
    runs = "in this process" if tool.cooperative else "in a worker process"
    console.print(
        f"timeout {tool.timeout:g} s, minimum interval {tool.min_interval:g} s, "
        f"{'cacheable' if tool.cacheable else 'not cacheable'}, {'needs a sandbox' if tool.risky else f'runs {runs}'}",
        highlight=False,
    )
    return 0


def _call(command: Call) -> int:
    arguments = _json_object(command.arguments, "the arguments")
    tool = load_tool(command.name, **_json_object(command.config, "--config"))
    with ToolBox([tool]) as box:
        result = box.call(ToolCall(command.name, arguments))
    print(result.text, file=sys.stdout if result.ok else sys.stderr)
    return 0 if result.ok else 1


def _json_object(text: str, what: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UsageError(
            f"{what} must be a JSON object such as '{{\"key\": 1}}', but {text!r} is not JSON ({error})"
        ) from None
    if not isinstance(value, dict):
        raise _UsageError(f"{what} must be a JSON object such as '{{\"key\": 1}}', not {text!r}")
    return cast(dict[str, Any], value)


def _console() -> Console:
    """As wide as the terminal; as wide as the text where there is none, so that a pipe gets whole lines."""
    return Console() if sys.stdout.isatty() else Console(width=240)
