"""`check_tool`: what the author of a tool runs in a test. It tries the tool and names all that breaks the contract.

The tool runs as in a tool box, first in a process that can be killed, so that one that hangs does not hang its test. It
does not judge whether answers are right, and it makes up arguments only as far as the schema tells.
"""

import copy
import gc
import inspect
import os
import pickle
import re
import threading
from collections.abc import Awaitable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, cast

from agentr1_tools.arguments import ArgumentChecker
from agentr1_tools.base import BaseTool, ToolReturn, check_contract
from agentr1_tools.calls import ToolCall
from agentr1_tools.errors import ErrorCode, InvalidToolError, ToolError, ToolOpenError
from agentr1_tools.result import ToolResult, from_exception, normalise
from agentr1_tools.runners import single_runner
from agentr1_tools.sample_arguments import sample_arguments
from agentr1_tools.toolbox import ToolBox

Arguments = dict[str, Any]

_CODE = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_LATE_SECONDS = 1.0
_ROUNDS = 4
_COPIED = ("name", "description", "parameters", "timeout", "min_interval", "risky", "cooperative")


class ToolCheckError(InvalidToolError):
    """A tool breaks its contract; `findings` says how, one sentence each."""

    def __init__(self, name: str, findings: Sequence[str]) -> None:
        self.findings = tuple(findings)
        super().__init__(f"tool {name!r}: " + "".join(f"\n  - {finding}" for finding in self.findings))


def check_tool(tool: BaseTool, examples: Sequence[Arguments] = ()) -> None:
    """Try a tool, and return quietly when it keeps the contract of `BaseTool`.

    Checked are: name, description and schema; that results are valid, come within `timeout` and have well-spelt codes;
    that `execute` raises nothing but `ToolError` and leaves its arguments alone; that equal calls give equal results,
    one after another, in another order, in another process, and, for a cooperative tool, at the same time; that a tool
    that runs in a worker process can be pickled; that `execute_batch` answers as `execute` does; and that `open()` and
    `close()` are balanced.

    Args:
        tool: the tool, configured as it will be used.
        examples: arguments to try, at least one of which succeeds. Without them the schema's `examples` and what can be
            made up from the schema are tried.

    Raises:
        ToolCheckError: with everything that was found.
    """
    findings = list(_declarations(tool))
    if not findings:
        tried = list(examples) or sample_arguments(tool.name, tool.parameters)
        findings += _illegal(tool, tried) if tried else ["no legal arguments could be made up; give examples=[{...}]"]
        if not findings:
            findings += dict.fromkeys(_behaviour(tool, tried))
    if findings:
        raise ToolCheckError(str(getattr(tool, "name", tool)), findings)


def _declarations(tool: BaseTool) -> Iterator[str]:
    """What is wrong before anything runs."""
    try:
        check_contract(tool)
        checker = ArgumentChecker(tool.name, tool.parameters)
    except InvalidToolError as error:
        yield str(error)
        return
    required = cast("list[str]", tool.parameters.get("required", []))
    if missing := [name for name in required if name not in checker.properties]:
        yield f"required names {', '.join(missing)}, which the schema's properties do not describe"
    if not tool.cooperative and not tool.risky:
        try:
            pickle.loads(pickle.dumps(tool))
        except Exception as error:
            yield (
                f"it runs in a worker process, but cannot be pickled ({type(error).__name__}: {error}); "
                "open what cannot travel in open(), not in the constructor"
            )


def _illegal(tool: BaseTool, examples: Sequence[Arguments]) -> list[str]:
    checker = ArgumentChecker(tool.name, tool.parameters)
    found: list[str] = []
    for example in examples:
        try:
            checker.validate(checker.bind(ToolCall(tool.name, example)))
        except ToolError as error:
            found.append(f"the example {example!r:.200} is not legal: {error.message}")
    return found


def _behaviour(tool: BaseTool, tried: Sequence[Arguments]) -> Iterator[str]:
    """What is wrong when it runs: first where it can be killed, then where it will run."""
    alone = _Probe(tool)
    alone.cooperative = False
    try:
        with _box(alone) as box:
            first = _in_turn(box, tried)
            found = list(_all_faults(tool, tried, first))
            backwards = [] if found else _in_turn(box, tried[::-1])[::-1]
        yield from found
        if not found and not any(result.ok for result in first):
            yield f"none of {len(first)} calls succeeded ({first[0].text:.200}); give examples=[{{...}}] that do"
        if found:
            return
        yield from _differing(tool, tried, first, backwards, "in another order")
        if tool.cooperative:
            yield from _in_process(tool, tried, first)
        if tool.batches:
            yield from _batched(tool, tried, first)
    except ToolOpenError as error:
        yield f"open() failed: {error}"


def _box(probe: "_Probe") -> ToolBox:
    return ToolBox([probe], cache_size=0, workers=1)


def _in_turn(box: ToolBox, tried: Sequence[Arguments]) -> list[ToolResult]:
    """One call after another."""
    return [box.call(ToolCall(box.names[0], arguments)) for arguments in tried]


def _all_faults(tool: BaseTool, tried: Sequence[Arguments], results: Sequence[ToolResult]) -> Iterator[str]:
    for arguments, result in zip(tried, results, strict=True):
        yield from _faults(tool, arguments, result)


def _faults(tool: BaseTool, arguments: Arguments, result: ToolResult) -> Iterator[str]:
    """What one result tells."""
    where = f"for {arguments!r:.200}"
    if result.metrics.get("raised"):
        yield (
            f"execute raised {where}: {result.text.partition(': ')[2]}; raise ToolError with a code, or narrow the "
            "schema"
        )
    elif result.error in (ErrorCode.INVALID_RESULT, ErrorCode.TIMEOUT, ErrorCode.SANDBOX_ERROR, ErrorCode.CANCELLED):
        yield f"{result.error} {where}: {result.text.partition(': ')[2]}"
    elif result.error is not None and not _CODE.fullmatch(result.error):
        yield f"the error code {result.error!r:.80} {where}; write codes as INVALID_CITY"
    if result.metrics.get("mutated"):
        yield f"execute changed its arguments {where}; copy what you change"
    if result.metrics["seconds"] > tool.timeout + _LATE_SECONDS:
        yield f"the limit of {tool.timeout:g} s did not hold {where}: back after {result.metrics['seconds']:.1f} s"


def _in_process(tool: BaseTool, tried: Sequence[Arguments], first: Sequence[ToolResult]) -> Iterator[str]:
    """A cooperative tool shares the process: the same results there, also from many threads; nothing left behind."""
    probe = _Probe(tool) if not inspect.iscoroutinefunction(tool.execute) else _AsyncProbe(tool)
    held: list[tuple[int, int]] = []
    for _ in range(3):
        with _box(probe) as box:
            results = _in_turn(box, tried)
        yield from _all_faults(tool, tried, results)
        yield from _differing(tool, tried, first, results, "in this process, opened again")
        held.append(_held())
    if all(before < after for before, after in pairwise(held)):
        yield f"each open() and close() leaves something open (descriptors, threads: {held}); close() must let go of it"
    together = [*tried] * _ROUNDS
    with _box(probe) as box:
        results = box.call_many([ToolCall(tool.name, arguments) for arguments in together])
    yield from _all_faults(tool, together, results)
    yield from _differing(tool, together, [*first] * _ROUNDS, results, "at the same time as others, from threads")


def _batched(tool: BaseTool, tried: Sequence[Arguments], first: Sequence[ToolResult]) -> Iterator[str]:
    batch = ([*tried] * 2)[: tool.max_batch]
    runner = single_runner(tool, 1)
    runner.open()
    try:
        results = runner.run_batch(copy.deepcopy(batch))
    finally:
        runner.close()
    if results is None:
        yield (
            f"execute_batch of {len(batch)} calls raised, took longer than {tool.timeout:g} s, or gave another number "
            "of results; write the failure of a call as its result"
        )
    else:
        yield from _differing(tool, batch, [*first, *first][: len(batch)], results, "in a batch")


def _differing(
    tool: BaseTool, tried: Sequence[Arguments], first: Sequence[ToolResult], second: Sequence[ToolResult], how: str
) -> Iterator[str]:
    """Equal calls with unequal results; a tool that is not cacheable may have them."""
    for arguments, one, other in zip(tried, first, second, strict=True):
        if tool.cacheable and (one.data, one.error, one.text) != (other.data, other.error, other.text):
            yield (
                f"{arguments!r:.200} gave {one.text!r:.80}, and {how} {other.text!r:.80}; keep no state between calls, "
                "or declare cacheable = False"
            )
            return


def _held() -> tuple[int, int]:
    """Descriptors (where /proc tells) and threads that keep the interpreter alive."""
    gc.collect()
    descriptors = Path("/proc/self/fd")
    count = len(os.listdir(descriptors)) if descriptors.is_dir() else 0
    return count, sum(not thread.daemon for thread in threading.enumerate())


class _Probe(BaseTool):
    """A tool whose results also tell what a result does not show: an exception, arguments that were changed."""

    cacheable = False

    def __init__(self, tool: BaseTool) -> None:
        self._tool = tool
        for attribute in _COPIED:
            setattr(self, attribute, getattr(tool, attribute))

    def open(self) -> None:
        self._tool.open()

    def close(self) -> None:
        self._tool.close()

    def execute(self, params: dict[str, Any]) -> ToolReturn | Awaitable[ToolReturn]:
        given = copy.deepcopy(params)
        try:
            returned = self._tool.execute(params)
        except Exception as error:
            return _raised(error)
        if inspect.isawaitable(returned):
            return _awaited(returned, params, given)
        return normalise(returned).with_metrics(mutated=params != given)


class _AsyncProbe(_Probe):
    """The same for a tool whose `execute` is a coroutine."""

    async def execute(self, params: dict[str, Any]) -> ToolReturn:
        returned = super().execute(params)
        return await returned if inspect.isawaitable(returned) else returned


async def _awaited(returned: Awaitable[ToolReturn], params: Arguments, given: Arguments) -> ToolReturn:
    try:
        result = normalise(await returned)
    except Exception as error:
        return _raised(error)
    return result.with_metrics(mutated=params != given)


def _raised(error: Exception) -> ToolResult:
    result = from_exception(error)
    return result if isinstance(error, ToolError | ConnectionError) else result.with_metrics(raised=True)
