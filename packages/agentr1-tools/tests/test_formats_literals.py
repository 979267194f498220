import json

import pytest
from agentr1_tools.formats.literals import (
    LiteralError,
    behind_brackets,
    read_call,
    read_literal,
    write_call,
    write_value,
)
from hypothesis import given
from hypothesis import strategies as st

JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(10**20), 10**20)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=10,
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("f()", ("f", (), {})),
        ("f( )", ("f", (), {})),
        ("f(\"a\", 'b')", ("f", ("a", "b"), {})),
        ("f(1, -2.5, +3, 1e3, 1_000)", ("f", (1, -2.5, 3, 1000.0, 1000), {})),
        ("f(a=1, b = 'x',)", ("f", (), {"a": 1, "b": "x"})),
        ("f(True, None, false, null)", ("f", (True, None, False, None), {})),
        ("f([1, [2]], {'a': {\"b\": []}})", ("f", ([1, [2]], {"a": {"b": []}}), {})),
        (r'f("line\nbreak \"quoted\" \u00e9 \x41 \d")', ("f", ('line\nbreak "quoted" é A \\d',), {})),
        ("f('it\\'s')", ("f", ("it's",), {})),
        ('f("a\nb")', ("f", ("a\nb",), {})),
        ('f("</tool_call> ) , (")', ("f", ("</tool_call> ) , (",), {})),
        ("mcp.search-all(1)", ("mcp.search-all", (1,), {})),
        ("f(\n  a=[\n 1\n ],\n)", ("f", (), {"a": [1]})),
        ("f(x='日本 🎉')", ("f", (), {"x": "日本 🎉"})),
    ],
)
def test_calls(text, expected):
    name, positional, named, end = read_call(text + " rest", 0)
    assert (name, positional, named) == expected
    assert end == len(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "expected a tool's name"),
        ("3(1)", "expected a tool's name"),
        ("f", "expected '\\('"),
        ("f(", "expected a string"),
        ("f(1", "expected ','"),
        ("f(1 2)", "expected ','"),
        ("f(a=)", "expected a string"),
        ("f(a=1, 2)", "a value without a name follows"),
        ("f(a=1, a=2)", "'a' is given twice"),
        ("f(x)", "'x' is no value; write strings in quotes"),
        ("f(__import__('os'))", "is no value"),
        ('f("open)', "the string is not closed"),
        ("f({1: 2})", "keys are strings"),
        ("f({'a' 2})", "expected ':'"),
        ("f(" + "[" * 5000, "nested more than"),
        ("f(" + "9" * 5000 + ")", "cannot be read"),
        ("f(a==1)", "'a' is no value"),
    ],
)
def test_faults(text, message):
    with pytest.raises(LiteralError, match=message):
        read_call(text, 0)


@given(JSON_VALUES)
def test_every_json_value_survives_being_written_and_read(value):
    _, positional, _, _ = read_call(f"f({write_value(value)})", 0)
    assert positional == (json.loads(json.dumps(value)),)


@given(st.text(max_size=200))
def test_any_text_is_a_call_or_a_fault(text):
    try:
        position = read_call(f"f({text}", 0)[3]
    except LiteralError as error:
        position = error.position
    assert 0 <= position <= len(text) + 2


def test_a_call_with_too_many_values_is_refused():
    with pytest.raises(LiteralError, match="more than 2000 values"):
        read_call(f"f([{'1,' * 3000}])", 0)


def test_a_whole_text_is_one_literal():
    assert read_literal(" [1, None, 'x'] ") == [1, None, "x"]
    for text in ("", "x", "1 2", "[1"):
        with pytest.raises(LiteralError):
            read_literal(text)


@pytest.mark.parametrize(
    ("text", "end"),
    [("f(a=[1], (2)), g()", 13), ('f("),", 1), g()', 10), ("3, g()", 1), ("3]", 1), ("f(", None), ("f('x", None)],
)
def test_an_item_of_a_broken_list_ends_where_its_brackets_close(text, end):
    assert behind_brackets(text, 0) == ((len(text), False) if end is None else (end, True))


def test_a_name_that_cannot_be_written_is_refused():
    assert write_call("f.g-h", (1,), {"a": "x"}) == 'f.g-h(1, a="x")'
    for name, named in (("f g", {}), ("f", {"a b": 1})):
        with pytest.raises(ValueError, match="cannot be written"):
            write_call(name, (), named)
