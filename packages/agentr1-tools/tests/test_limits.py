import pytest
from agentr1_tools import limits
from agentr1_tools.limits import RateLimit, truncate
from hypothesis import given
from hypothesis import strategies as st


def test_short_text_is_left_alone():
    assert truncate("x" * 100, 100) == "x" * 100


def test_head_and_tail_are_kept_and_the_cut_is_marked():
    text = truncate("HEAD" + "x" * 10_000 + "TAIL", 200)
    assert len(text) <= 200
    assert text.startswith("HEAD")
    assert text.endswith("TAIL")
    assert "characters cut ...]" in text


@given(st.text(min_size=101, max_size=3000), st.integers(100, 2999))
def test_the_mark_counts_what_is_missing(text, limit):
    cut = truncate(text, limit)
    assert len(cut) <= limit or cut == text
    if len(text) > limit:
        head, _, rest = cut.partition("\n[... ")
        missing, _, tail = rest.partition(" characters cut ...]\n")
        if "\n[... " not in text:
            assert text.startswith(head)
            assert text.endswith(tail)
            assert len(head) + int(missing) + len(tail) == len(text)


class Clock:
    """Stands in for `time`: it moves when a test moves it."""

    now = 100.0

    def monotonic(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(limits, "time", clock)
    return clock


def test_waiting_spaces_the_starts_of_calls(clock):
    rate = RateLimit(0.5)
    assert [rate.reserve(wait=True) for _ in range(3)] == [0, 0.5, 1.0]
    clock.now += 1.25
    assert rate.reserve(wait=True) == 0.25


def test_without_waiting_an_early_call_gets_nothing_and_takes_no_turn(clock):
    rate = RateLimit(0.5)
    assert rate.reserve(wait=False) == 0
    clock.now += 0.25
    assert rate.reserve(wait=False) is None
    clock.now += 0.25
    assert rate.reserve(wait=False) == 0


def test_no_interval_is_no_limit():
    assert [RateLimit(0).reserve(wait=False) for _ in range(3)] == [0, 0, 0]
