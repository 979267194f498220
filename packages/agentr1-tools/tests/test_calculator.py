import math
import time

import pytest
from agentr1_tools import ToolBox, ToolCall, ToolError, load_tool
from agentr1_tools.calculator import evaluate, show
from hypothesis import given
from hypothesis import strategies as st


@pytest.mark.parametrize(
    ("expression", "text"),
    [
        ("1 + 2 * 3", "7"),
        ("(1 + 2) * 3", "9"),
        ("7 / 2", "3.5"),
        ("6 / 2", "3"),
        ("-7 // 2", "-4"),
        ("-7 % 3", "2"),
        ("2 ** 3 ** 2", "512"),
        ("-2 ** 2", "-4"),
        ("2 ** -1", "0.5"),
        ("--3", "3"),
        ("0.1 + 0.2", "0.3"),
        ("1e3 + .5", "1000.5"),
        ("12345678901234567890 * 10", "123456789012345678900"),
        ("3 × 4 ÷ 2 − 1", "5"),
        ("sqrt(16) + abs(-2)", "6"),
        ("sqrt(2)", "1.41421356237"),
        ("round(2.567, 2)", "2.57"),
        ("round(2.6)", "3"),
        ("max(1, 2.5, 2) - min(3, 1)", "1.5"),
        ("factorial(20)", "2432902008176640000"),
        ("gcd(12, 18) + lcm(4, 6)", "18"),
        ("log(8, 2)", "3"),
        ("floor(2.7) + ceil(2.1)", "5"),
        ("1.5e300 * 1", "1.5e+300"),
    ],
)
def test_values(expression, text):
    assert show(evaluate(expression)) == text


NO_ARITHMETIC = """
1 + | (1 | 1) | 2 3 | 1 + x | pi | a.b | __import__('os') | ().__class__ | 1,234 + 1 | x = 1 | $5 | 2 ^ 3 | sqrt
sqrt() | sqrt(1, 2) | unknown(3) | [1] | 'a' * 3 | 0x10 | 1_000 | lambda: 1 | 1 < 2 | not 1 | max(1)
5! | 1 if 1 else 2
"""
SHORT = [part.strip() for line in NO_ARITHMETIC.strip().splitlines() for part in line.split(" | ")]
TOO_LONG_OR_DEEP = ["", "   ", "1" * 2000, "(" * 100 + "1" + ")" * 100, "2" + "**2" * 200]


@pytest.mark.parametrize("expression", SHORT + TOO_LONG_OR_DEEP)
def test_what_is_no_arithmetic_is_INVALID_ARGUMENT(expression):
    with pytest.raises(ToolError) as caught:
        evaluate(expression)
    assert caught.value.code == "INVALID_ARGUMENT"


@pytest.mark.parametrize(
    ("expression", "message"),
    [("2 ^ 3", "write \\*\\* for a power"), ("sqt(4)", "did you mean 'sqrt'"), ("1,234", "without commas")],
)
def test_the_message_helps(expression, message):
    with pytest.raises(ToolError, match=message):
        evaluate(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "10**10**10",
        "9**9**9**9",
        "99999**99999",
        "2**99999999999999999999",
        "factorial(10**9)",
        "factorial(factorial(20))",
        "*".join(["10**1000"] * 40),
        "1e308 * 10",
        "exp(1000)",
        "10.0**400",
        "(10**1200)**2",
        "lcm(10**1200 + 1, 10**1200 + 3)",
        "(2**4000) * 1.5",
        "round(5, 10**400)",
    ],
)
def test_blow_ups_are_refused_at_once(expression):
    started = time.perf_counter()
    with pytest.raises(ToolError) as caught:
        evaluate(expression)
    assert caught.value.code == "EXECUTION_ERROR"
    assert time.perf_counter() - started < 10


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        ("1 / 0", "division by zero"),
        ("5 % 0", "division by zero"),
        ("0 ** -1", "division by zero"),
        ("sqrt(-1)", "domain"),
        ("log(0)", "domain"),
        ("(-8) ** 0.5", "not real"),
        ("factorial(2.5)", "whole number"),
        ("gcd(1.5, 2)", "whole numbers"),
    ],
)
def test_what_has_no_value_is_EXECUTION_ERROR(expression, message):
    with pytest.raises(ToolError, match=message) as caught:
        evaluate(expression)
    assert caught.value.code == "EXECUTION_ERROR"


@given(
    st.recursive(
        st.integers(0, 999).map(str),
        lambda inner: st.tuples(inner, st.sampled_from(["+", "-", "*"]), inner).map(
            lambda parts: f"({' '.join(parts)})"
        ),
        max_leaves=12,
    )
)
def test_whole_number_arithmetic_agrees_with_python(expression):
    assert evaluate(expression) == eval(expression)


@given(st.text(alphabet="0123456789.+-*/%() sqrtlogmax,e", max_size=60))
def test_any_text_ends_in_a_finite_number_or_a_tool_error(expression):
    try:
        outcome = math.isfinite(evaluate(expression))
    except ToolError as error:
        outcome = error.code in ("INVALID_ARGUMENT", "EXECUTION_ERROR")
    assert outcome


def test_through_a_box_and_the_registry():
    calculator = load_tool("calculator")
    calculator.timeout = 10.0
    with ToolBox([calculator]) as box:
        result = box.call(ToolCall("calculator", {"expression": "0.1 + 0.2"}))
        assert (result.data, result.text) == (0.3, "0.3")
        assert box.call(ToolCall("calculator", positional=("2 * 21",))).data == 42
        assert box.call(ToolCall("calculator", {"expression": "10**10**10"})).error == "EXECUTION_ERROR"
        assert box.call(ToolCall("calculator", {"expression": 5})).error == "INVALID_ARGUMENT"
