import math

import gymnasium
import numpy as np
import pytest
from agentr1_envs import Messages, Text
from agentr1_envs.errors import WireError
from agentr1_envs.wire import dumps, loads, pack_space, unpack_space
from hypothesis import given
from hypothesis import strategies as st

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(st.characters())
VALUES = st.recursive(
    PLAIN,
    lambda inner: (
        st.lists(inner)
        | st.lists(inner).map(tuple)
        | st.dictionaries(st.text(), inner)
        | st.dictionaries(st.integers() | st.sampled_from(["!tuple", "!float"]), inner)
    ),
    max_leaves=12,
)


def same(first: object, second: object) -> bool:
    """Equal, in type too, at every depth."""
    if type(first) is not type(second):
        return False
    if isinstance(first, list | tuple):
        return len(first) == len(second) and all(map(same, first, second))
    if isinstance(first, dict):
        return list(first) == list(second) and all(same(first[key], second[key]) for key in first)
    return first == second


@given(VALUES)
def test_a_value_comes_back_as_it_was(value: object) -> None:
    assert same(loads(dumps(value)), value)


def test_text_is_ascii_and_carries_any_string() -> None:
    text = "\ud800 中文 🙂 \x00"
    assert dumps(text).isascii()
    assert loads(dumps(text)) == text


def test_numbers_json_lacks() -> None:
    back = loads(dumps([math.inf, -math.inf, math.nan]))
    assert back[:2] == [math.inf, -math.inf]
    assert math.isnan(back[2])


@pytest.mark.parametrize("dtype", ["bool", "int8", "uint64", "float16", "float32", "float64"])
def test_numpy_keeps_its_dtype_and_shape(dtype: str) -> None:
    array = np.arange(6).reshape(2, 3).astype(dtype)
    back = loads(dumps({"array": array, "one": array[1, 2], "none": array[:0]}))
    assert back["array"].dtype == back["one"].dtype == back["none"].dtype == dtype
    assert back["none"].shape == (0, 3)
    np.testing.assert_array_equal(back["array"], array)
    assert back["one"] == array[1, 2]


@pytest.mark.parametrize("value", [b"x", {1, 2}, object(), np.array(["x"]), np.complex64(1), [1, (2, {"a": 1j})]])
def test_what_cannot_travel_is_refused(value: object) -> None:
    with pytest.raises(WireError, match=r"the answer holds .*legal are"):
        dumps(value, "the answer")


def test_a_nest_without_end_is_refused() -> None:
    nest: list[object] = []
    nest.append(nest)
    with pytest.raises(WireError, match="nested too deeply"):
        dumps(nest)
    with pytest.raises(WireError):
        loads("[" * 100_000 + "]" * 100_000)


@pytest.mark.parametrize(
    "text",
    [
        "{",
        '{"!tuple": 1}',
        '{"!float": "1"}',
        '{"!array": ["object", [1], [1]]}',
        '{"!array": ["int8", [3], [1]]}',
        '{"!array": ["int8", [1], ["x"]]}',
        '{"!dict": [[1]]}',
        '{"!dict": [[[], 1]]}',
        '{"!pickle": "x"}',
    ],
)
def test_what_is_no_value_is_refused(text: str) -> None:
    with pytest.raises(WireError):
        loads(text)


@pytest.mark.parametrize(
    "space",
    [
        Text(),
        Text(30, min_length=2),
        Messages(),
        Messages(("user", "assistant")),
        gymnasium.spaces.Text(9, min_length=2, charset="xyz "),
    ],
    ids=str,
)
def test_a_space_comes_back_as_it_was(space: gymnasium.Space) -> None:
    back = unpack_space(loads(dumps(pack_space(space))))
    assert back == space
    assert type(back) is type(space)


def test_other_spaces_are_refused_by_name() -> None:
    with pytest.raises(WireError, match=r"Discrete\(3\) cannot be served.*agentr1_envs.Text"):
        pack_space(gymnasium.spaces.Discrete(3))
    with pytest.raises(WireError, match="'Box'"):
        unpack_space({"space": "Box"})
