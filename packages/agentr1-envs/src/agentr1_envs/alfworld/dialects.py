"""The two ways to say that a thing is put down: `put X in/on Y` (ALFWorld 0.3) and `move X to Y` (0.4)."""

import re

DIALECTS = ("0.3", "0.4")
OWN = "own"
"""The setting that accepts no other dialect than the game's."""

_PUT_FORM = re.compile(r'"put \{\w+\} in/on \{\w+\}"')
_MOVE_FORM = re.compile(r'"move \{\w+\} to \{\w+\}"')
_PUT = re.compile(r"put (.+) in/on (.+)")
_MOVE = re.compile(r"move (.+) to (.+)")


def dialect_of(grammar: str) -> str:
    """The dialect of a grammar's text; "" when it has neither form."""
    return "0.4" if _MOVE_FORM.search(grammar) else "0.3" if _PUT_FORM.search(grammar) else ""


def translated(command: str, accepted: str, spoken: str) -> str:
    """A command of the accepted dialect in the one the game speaks; any other command as it is."""
    if accepted == "0.3" and spoken == "0.4" and (found := _PUT.fullmatch(command)):
        return f"move {found.group(1)} to {found.group(2)}"
    if accepted == "0.4" and spoken == "0.3" and (found := _MOVE.fullmatch(command)):
        return f"put {found.group(1)} in/on {found.group(2)}"
    return command
