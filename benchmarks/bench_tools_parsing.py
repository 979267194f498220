"""How long a format takes to read a megabyte of text that is made to be slow, and how that time grows with the text.

    .venv/bin/python benchmarks/bench_tools_parsing.py

Goal: 100 ms for each text, and a time that grows with the text, not faster. It measures the processor time of `parse`
alone, the best of three runs.
"""

import argparse
import time

from agentr1_tools import available_formats, get_format
from rich.console import Console
from rich.table import Table

SIZE, SMALL_SIZE = 1_000_000, 125_000
GOAL_MS = 100.0

# Any format: what is repeated, alone and inside a string of a call that has begun.
UNITS = {
    "open braces": "{",
    "open brackets": "[",
    "double quotes": '"',
    "backslashes": "\\",
    "escaped quotes": '\\"',
    "spaces": " ",
    "line breaks": "\n",
    "one word": "a",
    "thoughts": "<think></think>",
    "open thoughts": "<think>",
    "closing thoughts": "</think>",
    "open answers": "<answer>",
    "numbers": "1,",
    "objects": '{"name": "f", "arguments": {"a": ',
}

# For each format: a call up to the inside of its first string, a call whose value is still to come, what closes a call.
PARTS = {
    "hermes": (
        '<tool_call>{"name": "f", "arguments": {"a": "',
        '<tool_call>{"name": "f", "arguments": {"a": ',
        "</tool_call>",
    ),
    "call": ('<tool_call>f("', "<tool_call>f([", "</tool_call>"),
    "qwen3_coder": (
        "<tool_call><function=f><parameter=a>",
        "<tool_call><function=f><parameter=a>1</parameter>",
        "</parameter></function></tool_call>",
    ),
    "llama3": ('{"name": "f", "parameters": {"a": "', '; {"name": "f", "parameters": {"a": ', "<|eom_id|>"),
    "mistral": (
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": "',
        '[TOOL_CALLS][{"name": "f", "arguments": {"a": ',
        "}}]",
    ),
    "pythonic": ('[f(a="', ", f(a=[", ")]"),
    "harmony": (
        '<|channel|>commentary to=functions.f<|message|>{"a": "',
        '<|channel|>commentary to=functions.f<|message|>{"a": ',
        "<|call|>",
    ),
    "react": ("Action: f[", 'Action: f\nAction Input: {"a": ', "]\n"),
    "tags": ("<f>", '<f>{"a": ', "</f>"),
}


def adversarial_texts(name: str) -> dict[str, tuple[str, str]]:
    """By label: what a text begins with, and what fills the rest of it."""
    inside, value, close = PARTS[name]
    texts = {label: ("", unit) for label, unit in UNITS.items()}
    texts |= {f"{label} in a string": (inside, unit) for label, unit in UNITS.items()}
    texts |= {f"{label} as a value": (value, unit) for label, unit in UNITS.items()}
    texts |= {f"{label} behind 31 broken calls": (value * 31, unit) for label, unit in UNITS.items()}
    texts["open strings"] = ("", inside)
    texts["open values"] = ("", value)
    texts["closings"] = ("", close)
    texts["empty calls"] = ("", inside + close)
    texts["calls without a value"] = ("", value + close)
    texts["lines of calls"] = ("", inside + "\n")
    return texts


def seconds(name: str, start: str, unit: str, size: int, runs: int = 3) -> float:
    """The best processor time to parse `start` and as many `unit`s as fit into `size` characters."""
    parse = get_format(name).parse
    text = start + unit * ((size - len(start)) // len(unit))
    best = float("inf")
    for _ in range(runs):
        begun = time.process_time()
        parse(text)
        best = min(best, time.process_time() - begun)
    return best


def main() -> None:
    """Print the slowest texts of each format, or with --all every one."""
    parser = argparse.ArgumentParser(description="Time the parsing of adversarial texts.")
    parser.add_argument("--all", action="store_true", help="show every text, not only each format's slowest three")
    shown = parser.parse_args().all
    table = Table("format", "text", "ms at 1 MB", f"goal {GOAL_MS:g} ms", "growth for 8 x the text")
    missed = 0
    for name in sorted(available_formats().keys() & PARTS.keys()):
        rows: list[tuple[float, float, str]] = []
        for label, (start, unit) in adversarial_texts(name).items():
            whole = seconds(name, start, unit, SIZE) * 1000
            rows.append((whole, seconds(name, start, unit, SMALL_SIZE) * 1000, label))
        rows.sort(reverse=True)
        missed += sum(whole > GOAL_MS for whole, _, _ in rows)
        for whole, small, label in rows if shown else rows[:3]:
            verdict = "met" if whole <= GOAL_MS else "missed"
            table.add_row(name, label, f"{whole:.1f}", verdict, f"{whole / small:.1f} x")
    console = Console()
    console.print(table)
    console.print(f"{missed} texts missed the goal.")


if __name__ == "__main__":
    main()
