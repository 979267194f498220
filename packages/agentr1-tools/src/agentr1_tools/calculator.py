"""`calculator`: arithmetic on numbers. It has its own grammar: no names, no attributes, no Python behind it.

    expression := term (("+" | "-") term)*          term  := unary (("*" | "/" | "//" | "%") unary)*
    unary      := ("+" | "-") unary | power         power := atom ("**" unary)?
    atom       := number | "(" expression ")" | function "(" expression ("," expression)* ")"

Whole numbers are exact up to `MAX_BITS` bits, everything else is a float shown with 12 significant digits. What would
grow beyond that is refused before it is computed, so `10**10**10` costs nothing.
"""

import math
import operator
import re
from collections.abc import Callable
from typing import Any

from agentr1_tools.base import BaseTool, ToolReturn
from agentr1_tools.errors import ErrorCode, ToolError, did_you_mean, listed

Number = int | float

MAX_CHARS = 1000
MAX_BITS = 4096
MAX_DEPTH = 50

_TOKEN = re.compile(
    r"\s*(?:(\d+(?:\.\d*)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)|([A-Za-z_]\w*)|(\*\*|//|[-+*/%(),]))"
)
_SPELLINGS = str.maketrans({"−": "-", "–": "-", "×": "*", "·": "*", "÷": "/"})
_HINTS = {
    "^": "write ** for a power",
    "=": "give one expression, not an equation",
    "$": "give the number without its currency",
    "€": "give the number without its currency",
    "£": "give the number without its currency",
}


def evaluate(expression: str) -> Number:
    """The value. Raises ToolError: INVALID_ARGUMENT for what is no expression, EXECUTION_ERROR if it has no value."""
    if len(expression) > MAX_CHARS:
        raise _wrong(f"the expression has {len(expression)} characters; at most {MAX_CHARS} are read")
    try:
        value = _Parser(_tokens(expression.translate(_SPELLINGS))).parse()
    except ZeroDivisionError:
        raise ToolError(ErrorCode.EXECUTION_ERROR, "division by zero") from None
    except OverflowError:
        raise _too_large() from None
    except ValueError:
        raise ToolError(ErrorCode.EXECUTION_ERROR, "a function was given a number outside its domain") from None
    if isinstance(value, float) and not math.isfinite(value):
        raise _too_large()
    return value


def show(value: Number) -> str:
    """The number as text: whole numbers in full, others with 12 significant digits."""
    return str(value) if isinstance(value, int) else f"{value:.12g}"


def _wrong(message: str) -> ToolError:
    return ToolError(ErrorCode.INVALID_ARGUMENT, message)


def _too_large() -> ToolError:
    return ToolError(ErrorCode.EXECUTION_ERROR, "the result is too large")


def _tokens(text: str) -> list[str]:
    tokens: list[str] = []
    position, end = 0, len(text.rstrip())
    while position < end:
        match = _TOKEN.match(text, position)
        if match is None:
            sign = text[position:].lstrip()[0]
            hint = f"; {_HINTS[sign]}" if sign in _HINTS else ""
            raise _wrong(f"{sign!r} is not arithmetic{hint}")
        tokens.append(match[0].strip())
        position = match.end()
    return tokens


def _bounded(value: Number) -> Number:
    if isinstance(value, int) and value.bit_length() > MAX_BITS:
        raise _too_large()
    return value


def _divide(left: Number, right: Number) -> Number:
    if isinstance(left, int) and isinstance(right, int) and right and left % right == 0:
        return left // right
    return left / right


def _floor_divide(left: Number, right: Number) -> Number:
    return left // right


def _multiply(left: Number, right: Number) -> Number:
    return _bounded(left * right)


def _power(base: Number, exponent: Number) -> Number:
    if isinstance(base, int) and isinstance(exponent, int) and abs(base) > 1:
        if exponent > MAX_BITS or base.bit_length() * exponent > 2 * MAX_BITS:
            raise _too_large()
    elif base < 0 and not float(exponent).is_integer():
        raise ToolError(ErrorCode.EXECUTION_ERROR, "a fractional power of a negative number is not real")
    return _bounded(base**exponent)


def _factorial(value: Number) -> int:
    if not isinstance(value, int) or value < 0:
        raise ToolError(ErrorCode.EXECUTION_ERROR, "factorial takes a whole number, 0 or more")
    if value > 500:
        raise _too_large()
    return math.factorial(value)


def _root(value: Number) -> Number:
    whole = math.isqrt(value) if isinstance(value, int) and value >= 0 else 0
    return whole if whole and whole * whole == value else math.sqrt(value)


def _whole(function: Callable[..., int]) -> Callable[..., int]:
    def apply(*values: Number) -> int:
        if not all(isinstance(value, int) for value in values):
            raise ToolError(ErrorCode.EXECUTION_ERROR, f"{function.__name__} takes whole numbers")
        return function(*values)

    return apply


def _round(value: Number, digits: Number = 0) -> Number:
    if not isinstance(digits, int) or abs(digits) > 300:
        raise ToolError(ErrorCode.EXECUTION_ERROR, "round takes a whole number of digits, at most 300")
    return round(value, digits) if digits else round(value)


# name -> function, fewest and most arguments
_FUNCTIONS: dict[str, tuple[Callable[..., Any], int, int]] = {
    "abs": (abs, 1, 1),
    "acos": (math.acos, 1, 1),
    "asin": (math.asin, 1, 1),
    "atan": (math.atan, 1, 1),
    "atan2": (math.atan2, 2, 2),
    "ceil": (math.ceil, 1, 1),
    "cos": (math.cos, 1, 1),
    "degrees": (math.degrees, 1, 1),
    "exp": (math.exp, 1, 1),
    "factorial": (_factorial, 1, 1),
    "floor": (math.floor, 1, 1),
    "gcd": (_whole(math.gcd), 1, 20),
    "lcm": (lambda *values: _bounded(_whole(math.lcm)(*values)), 1, 20),
    "ln": (math.log, 1, 1),
    "log": (math.log, 1, 2),
    "log10": (math.log10, 1, 1),
    "log2": (math.log2, 1, 1),
    "max": (max, 2, 100),
    "min": (min, 2, 100),
    "radians": (math.radians, 1, 1),
    "round": (_round, 1, 2),
    "sin": (math.sin, 1, 1),
    "sqrt": (_root, 1, 1),
    "tan": (math.tan, 1, 1),
}
_SUMS: dict[str, Callable[[Any, Any], Number]] = {"+": operator.add, "-": operator.sub}
_PRODUCTS: dict[str, Callable[[Any, Any], Number]] = {
    "*": _multiply,
    "/": _divide,
    "//": _floor_divide,
    "%": operator.mod,
}


class _Parser:
    """Recursive descent that evaluates as it reads."""

    def __init__(self, tokens: list[str]) -> None:
        self._tokens = tokens
        self._next = 0
        self._depth = 0

    def parse(self) -> Number:
        if not self._tokens:
            raise _wrong("the expression is empty")
        value = self._expression()
        if self._next < len(self._tokens):
            rest = self._peek()
            hint = "; write large numbers without commas" if rest == "," else ""
            raise _wrong(f"unexpected {rest!r} after {''.join(self._tokens[: self._next])!r}{hint}")
        return value

    def _peek(self) -> str:
        return self._tokens[self._next] if self._next < len(self._tokens) else ""

    def _take(self) -> str:
        token = self._peek()
        self._next += 1
        return token

    def _expect(self, token: str) -> None:
        found = self._take()
        if found != token:
            raise _wrong(f"expected {token!r}, found {found!r}" if found else f"{token!r} is missing at the end")

    def _expression(self) -> Number:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _wrong(f"nested more than {MAX_DEPTH} deep")
        value = self._term()
        while (sign := self._peek()) in _SUMS:
            self._next += 1
            value = _bounded(_SUMS[sign](value, self._term()))
        self._depth -= 1
        return value

    def _term(self) -> Number:
        value = self._unary()
        while (sign := self._peek()) in _PRODUCTS:
            self._next += 1
            value = _PRODUCTS[sign](value, self._unary())
        return value

    def _unary(self) -> Number:
        negative = False
        while self._peek() in _SUMS:
            negative ^= self._take() == "-"
        value = self._power()
        return -value if negative else value

    def _power(self) -> Number:
        base = self._atom()
        if self._peek() != "**":
            return base
        self._next += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise _wrong(f"nested more than {MAX_DEPTH} deep")
        exponent = self._unary()
        self._depth -= 1
        return _power(base, exponent)

    def _atom(self) -> Number:
        token = self._take()
        if not token:
            raise _wrong("the expression ends where a number is expected")
        if token == "(":
            value = self._expression()
            self._expect(")")
            return value
        if token[0].isdigit() or token[0] == ".":
            return _number(token)
        if token[0].isalpha() or token[0] == "_":
            return self._call(token)
        raise _wrong(f"expected a number, found {token!r}")

    def _call(self, name: str) -> Number:
        if name not in _FUNCTIONS or self._peek() != "(":
            hint = did_you_mean(name, _FUNCTIONS)
            raise _wrong(f"{name!r} is not a number{hint} (functions: {listed(_FUNCTIONS)})")
        function, fewest, most = _FUNCTIONS[name]
        self._next += 1
        values = [self._expression()]
        while self._peek() == ",":
            self._next += 1
            values.append(self._expression())
        self._expect(")")
        if not fewest <= len(values) <= most:
            count = fewest if fewest == most else f"{fewest} to {most}"
            raise _wrong(f"{name} takes {count} numbers, not {len(values)}")
        return function(*values)


def _number(token: str) -> Number:
    return int(token) if token.isdecimal() else float(token)


_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {
        "expression": {
            "type": "string",
            "description": "Numbers with + - * / // % ** and parentheses; functions such as sqrt, round, min, log.",
        }
    },
    "required": ["expression"],
    "additionalProperties": False,
}


class Calculator(BaseTool):
    """The tool: `expression` in, its value out."""

    name = "calculator"
    description = "Evaluate an arithmetic expression and return the number."
    parameters = _PARAMETERS
    cooperative = True

    def execute(self, params: dict[str, Any]) -> ToolReturn:
        """`data` is the number; a float is rounded to the 12 digits that are shown."""
        text = show(evaluate(params["expression"]))
        value: Number = float(text) if any(mark in text for mark in ".en") else int(text)
        return {"status": "success", "data": value, "text": text}
