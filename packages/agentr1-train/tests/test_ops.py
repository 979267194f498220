"""The arithmetic of credit: closed forms and the small cases."""

import math

import pytest
from agentr1_train import ops
from hypothesis import given
from hypothesis import strategies as st

floats = st.floats(-100, 100)


def test_std_is_unbiased():
    assert ops.std([1.0, 2.0, 3.0, 4.0]) == pytest.approx(math.sqrt(5 / 3))


@pytest.mark.parametrize("values", [[], [3.0]])
def test_fewer_than_two_values_are_left_as_they_are(values: list[float]):
    assert ops.whiten(values) == values
    assert ops.std(values) == 0.0


def test_mean_of_nothing_is_zero():
    assert ops.mean([]) == 0.0


def test_whitening_equal_values_gives_zeros():
    assert ops.whiten([0.1] * 7) == pytest.approx([0.0] * 7, abs=1e-6)


@given(st.lists(floats, min_size=2, max_size=30), st.randoms())
def test_whitening_follows_a_reordering_bit_for_bit(values: list[float], random):
    order = list(range(len(values)))
    random.shuffle(order)
    whitened = ops.whiten(values)
    assert ops.whiten([values[i] for i in order]) == [whitened[i] for i in order]


@given(st.lists(floats, min_size=2, max_size=30, unique=True))
def test_whitened_values_have_mean_zero_and_std_one(values: list[float]):
    if ops.std(values) < 1e-3:
        return
    whitened = ops.whiten(values)
    assert ops.mean(whitened) == pytest.approx(0.0, abs=1e-6)
    assert ops.std(whitened) == pytest.approx(1.0, rel=1e-4)


def test_whitening_a_ragged_list_is_over_all_rows_and_keeps_the_shape():
    first, second, third = ops.whiten([1.0, 2.0, 6.0])
    assert ops.whiten_ragged([[1.0], [], [2.0, 6.0]]) == ((first,), (), (second, third))


def test_weighted_moments_are_those_of_the_repeated_values():
    centre, scale = ops.weighted_moments([1.0, 5.0, 2.0], [3, 0, 2])
    assert centre == pytest.approx(ops.mean([1.0, 1.0, 1.0, 2.0, 2.0]))
    assert scale == pytest.approx(ops.std([1.0, 1.0, 1.0, 2.0, 2.0]) + 1e-8)
    assert ops.weighted_moments([4.0, 5.0], [1, 0]) == (0.0, 1.0)


def test_discounted_sums_closed_form():
    assert ops.discounted_sums([1.0, 0.0, 4.0], 0.5) == [2.0, 2.0, 4.0]
    assert ops.discounted_sums([], 0.5) == []


@given(st.lists(st.tuples(floats, floats), min_size=1, max_size=8), floats, st.floats(0, 1))
def test_gae_with_lambda_one_is_return_minus_value(pairs, final_value: float, gamma: float):
    rewards, values = zip(*pairs, strict=True)
    got = ops.gae(rewards, values, final_value, gamma, 1.0)
    returns = ops.discounted_sums([*rewards, final_value], gamma)[:-1]
    assert got == pytest.approx([g - v for g, v in zip(returns, values, strict=True)], abs=1e-9)


def test_gae_with_lambda_zero_is_the_one_step_error():
    assert ops.gae([1.0, 2.0], [10.0, 20.0], 30.0, 0.5, 0.0) == [1 + 10 - 10, 2 + 15 - 20]
