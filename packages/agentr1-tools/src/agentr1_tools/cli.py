"""The console script `agentr1-tools`: list the installed tools and formats; describe, call, check or serve tools.

Exit codes: 0 it worked, 1 the call ended in an error result or the tool breaks its contract, 2 the command was wrong
(an unknown name, bad JSON, a configuration the tool does not take). Errors are one line on stderr.
"""

import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal, cast

import tyro
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from agentr1_tools.arguments import ArgumentChecker
from agentr1_tools.calls import ToolCall
from agentr1_tools.conformance import ToolCheckError, check_tool
from agentr1_tools.errors import (
    DuplicateNameError,
    InvalidToolError,
    ToolConfigError,
    ToolOpenError,
    UnknownToolError,
    listed,
)
from agentr1_tools.extras import require
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


@dataclass(frozen=True)
class Check:
    """Try a tool and name everything that breaks the contract of tools."""

    name: tyro.conf.Positional[str]
    """Name of the tool."""
    config: str = "{}"
    """JSON object with which the tool is configured."""
    example: tyro.conf.UseAppendAction[tuple[str, ...]] = ()
    """JSON object of arguments to try; may be given several times. Without it they are made up from the schema."""


@dataclass(frozen=True)
class Serve:
    """Serve tools over HTTP, until Ctrl-C. There is no authentication: keep to a network you trust."""

    tools: tuple[str, ...]
    """Names of the tools."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8001
    """Port to listen on; 0 takes a free one, which the first line of output names."""
    config: str = "{}"
    """JSON object of tool name: configuration, such as '{"wiki_search": {"corpus": "corpus.jsonl"}}'."""
    workers: int = 4
    """Processes a tool that is not cooperative may use at the same time."""
    cache_size: int = 4096
    """Successes kept for tools that are cacheable; 0 turns the cache off."""
    max_result_chars: int = 65536
    """Longer texts keep their head and tail; a caller's tool box cuts to its own limit after this one."""
    max_body_bytes: int = 1024 * 1024
    """Longer requests are refused."""
    max_requests: int = 256
    """Requests at work at the same time; more are refused as RATE_LIMITED."""
    max_batch: int = 64
    """Calls of one request."""


@dataclass(frozen=True)
class ServeRetriever:
    """Serve a corpus over HTTP in Search-R1's protocol, until Ctrl-C. There is no authentication."""

    corpus: Path
    """A jsonl file of passages, or a folder with a corpus.jsonl."""
    host: str = "127.0.0.1"
    """Address to listen on."""
    port: int = 8000
    """Port to listen on; 0 takes a free one, which the first line of output names."""
    retriever: Literal["bm25", "dense"] = "bm25"
    """By words (bm25), or by meaning (dense, with --model)."""
    model: Path | None = None
    """Folder of a sentence-transformers model."""
    cache: Path | None = None
    """Folder where the corpus's vectors are kept; by default the user's cache folder."""
    topk: int = 3
    """Passages for a query that does not say how many."""
    max_body_bytes: int = 1024 * 1024
    """Longer requests are refused."""
    max_requests: int = 256
    """Requests at work at the same time; more are refused as RATE_LIMITED."""
    max_batch: int = 512
    """Queries of one request."""


Command = (
    Annotated[List, tyro.conf.subcommand("list")]
    | Annotated[Describe, tyro.conf.subcommand("describe")]
    | Annotated[Call, tyro.conf.subcommand("call")]
    | Annotated[Check, tyro.conf.subcommand("check")]
    | Annotated[Serve, tyro.conf.subcommand("serve")]
    | Annotated[ServeRetriever, tyro.conf.subcommand("serve-retriever")]
)


class _UsageError(ValueError):
    """The command line holds something that cannot be read."""


def main(argv: list[str] | None = None) -> int:
    """Run one command; returns the exit code."""
    command = tyro.cli(
        cast(Any, Command), args=argv, prog="agentr1-tools", description="Tools for language-model agents."
    )
    try:
        match command:
            case Describe():
                return _describe(command)
            case Call():
                return _call(command)
            case Check():
                return _check(command)
            case Serve():
                return _serve(command)
            case ServeRetriever():
                return _serve_retriever(command)
            case _:
                return _list()
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
        result = box.call(ToolCall(tool.name, arguments))
    print(result.text, file=sys.stdout if result.ok else sys.stderr)
    return 0 if result.ok else 1


def _check(command: Check) -> int:
    tool = load_tool(command.name, **_json_object(command.config, "--config"))
    try:
        check_tool(tool, [_json_object(example, "--example") for example in command.example])
    except ToolCheckError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{tool.name} keeps the contract")
    return 0


def _serve(command: Serve) -> int:
    require("serve", "serving tools")
    from agentr1_tools.serving.gate import ServingLimits
    from agentr1_tools.serving.run import run
    from agentr1_tools.serving.toolbox_app import toolbox_app

    if not command.tools:
        raise _UsageError(f"--tools names none; installed are {listed(available())}")
    config = _json_object(command.config, "--config")
    if strangers := config.keys() - set(command.tools):
        raise _UsageError(f"--config names {listed(strangers)}, but --tools {listed(command.tools)}")
    limits = ServingLimits(command.max_body_bytes, command.max_requests, command.max_batch)
    tools = [load_tool(name, **_object(config.get(name, {}), f"--config of {name}")) for name in command.tools]
    with ToolBox(
        tools,
        workers=command.workers,
        cache_size=command.cache_size,
        max_result_chars=command.max_result_chars,
    ) as box:
        run(toolbox_app(box, limits), command.host, command.port, ", ".join(box.names))
    return 0


def _serve_retriever(command: ServeRetriever) -> int:
    require("serve", "serving a corpus")
    from agentr1_tools.serving.gate import ServingLimits
    from agentr1_tools.serving.retriever_app import retriever_app
    from agentr1_tools.serving.run import run
    from agentr1_tools.wiki_search import check_retriever, load_index

    check_retriever(command.retriever, command.model, command.cache)
    limits = ServingLimits(command.max_body_bytes, command.max_requests, command.max_batch)
    index = load_index(command.corpus, command.retriever, command.model, command.cache)
    run(retriever_app(index, command.topk, limits), command.host, command.port, f"retriever of {command.corpus}")
    return 0


def _json_object(text: str, what: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _UsageError(
            f"{what} must be a JSON object such as '{{\"key\": 1}}', but {text!r} is not JSON ({error})"
        ) from None
    return _object(value, what)


def _object(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _UsageError(f"{what} must be a JSON object such as '{{\"key\": 1}}', not {json.dumps(value)}")
    return cast(dict[str, Any], value)


def _console() -> Console:
    """As wide as the terminal; as wide as the text where there is none, so that a pipe gets whole lines."""
    return Console() if sys.stdout.isatty() else Console(width=240)
