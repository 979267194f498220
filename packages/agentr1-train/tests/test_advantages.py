"""Estimators against golden answers, closed forms and invariances."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest
from agentr1_train.advantages.base import flat_groups
from agentr1_train.advantages.bilevel_gae import bilevel_gae
from agentr1_train.advantages.gigpo import gigpo
from agentr1_train.advantages.layered import layered
from agentr1_train.advantages.records import Credit, CreditTrajectory, TokenCredit
from agentr1_train.advantages.registry import ESTIMATORS, estimate
from agentr1_train.advantages.remax import remax
from agentr1_train.advantages.shaping import overlong_penalty, permute_rewards, subtract_kl
from agentr1_train.advantages.token_gae import token_gae
from agentr1_train.errors import ConfigError, UnknownNameError
from hypothesis import given
from hypothesis import strategies as st


@dataclass(frozen=True)
class Settings:
    estimator: str
    gamma: float = 1.0
    lam: float = 0.95
    bootstrap_truncated: bool = True
    gamma_step: float = 0.95
    lam_step: float = 1.0
    step_weight: float = 1.0
    divide_by_std: bool = True
    layer_weights: Mapping[str, float] = field(default_factory=lambda: {"env": 0.4, "task": 0.6})
    layer_estimator: str = "reinforce"


def trajectory(rewards, values=None, **others) -> CreditTrajectory:
    """One whose responses have one token each."""
    base: dict[str, Any] = {"group": 0, "member": 0, "lengths": (1,) * len(rewards)}
    return CreditTrajectory(rewards=tuple(rewards), values=values and tuple(values), **base | others)


def complete(item: CreditTrajectory) -> CreditTrajectory:
    """With everything that any estimator reads: values at tokens, streams, a greedy return."""
    values = item.values or (0.0,) * len(item.rewards)
    return replace(
        item,
        values=values,
        token_values=tuple((value,) * length for value, length in zip(values, item.lengths, strict=True)),
        parts={"env": tuple(reward / 2 for reward in item.rewards), "task": item.rewards},
        greedy_return=0.25,
        state_keys=item.state_keys or tuple(map(str, range(len(item.rewards)))),
    )


def credited(batch: list[CreditTrajectory], settings: Settings) -> Credit:
    """Credit of complete records, one float a step."""
    credit = estimate([complete(item) for item in batch], settings)
    return credit.of_steps() if isinstance(credit, TokenCredit) else credit


def golden_cases(shared: Path, name: str) -> list[dict[str, Any]]:
    cases = json.loads((shared / "golden" / "credit.json").read_text("utf-8"))["cases"]
    return [case for case in cases if case.get("estimator") == name]


def from_golden(case: dict[str, Any]) -> list[CreditTrajectory]:
    return [
        CreditTrajectory(
            group=int(item["group"].removeprefix("g")),
            member=member,
            rewards=tuple(item["rewards"]),
            lengths=tuple(len(values) for values in item["token_values"]),
            values=tuple(item["values"]),
            final_value=item["final_value"],
            truncated=item["truncated"],
            state_keys=tuple(item["state_keys"]),
            parts={name: tuple(part) for name, part in item["parts"].items()},
            token_values=tuple(map(tuple, item["token_values"])),
            greedy_return=case.get("greedy_returns", {}).get(item["group"]),
        )
        for member, item in enumerate(case["trajectories"])
    ]


def test_the_golden_file_holds_what_the_tests_here_and_of_the_losses_count(shared: Path):
    cases = json.loads((shared / "golden" / "credit.json").read_text("utf-8"))["cases"]
    assert len(cases) == 267
    assert {case["kind"] for case in cases} == {"advantage", "policy_loss", "kl", "mismatch", "value_loss"}
    assert {case.get("estimator") for case in cases} - {None} == set(ESTIMATORS)


def assert_rows(got, wanted) -> None:
    assert [len(row) for row in got] == [len(row) for row in wanted]
    for row, golden in zip(got, wanted, strict=True):
        assert list(row) == pytest.approx(golden, abs=1e-6, rel=1e-6)


@pytest.mark.parametrize(
    ("name", "count"),
    [
        ("step_gae", 30),
        ("reinforce", 10),
        ("reinforce_pp", 5),
        ("reinforce_pp_baseline", 5),
        ("grpo", 5),
        ("dr_grpo", 5),
        ("rloo", 5),
    ],
)
def test_golden_answers(shared: Path, name: str, count: int):
    cases = golden_cases(shared, name)
    assert len(cases) == count
    for case in cases:
        reads = {key: case[key] for key in ("gamma", "lam", "bootstrap_truncated") if key in case}
        assert set(reads) == set(ESTIMATORS[name].reads)
        credit = estimate(from_golden(case), Settings(name, **reads))
        assert_rows(credit.raw, case["raw"])
        assert_rows(credit.advantages, case.get("whitened", case["raw"]))
        if "returns" in case:
            assert credit.returns is not None
            assert_rows(credit.returns, case["returns"])


def arguments(case: dict[str, Any]) -> dict[str, Any]:
    names = ("gamma", "lam", "bootstrap_truncated", "gamma_step", "lam_step", "step_weight", "divide_by_std")
    return {name: case[name] for name in names if name in case}


@pytest.mark.parametrize(("estimator", "count"), [(gigpo, 20), (remax, 5), (layered, 5)])
def test_golden_answers_of_functions(shared: Path, estimator: Callable[..., Credit], count: int):
    cases = golden_cases(shared, estimator.__name__)
    assert len(cases) == count
    for case in cases:
        credit = estimator(from_golden(case), **arguments(case))
        assert_rows(credit.advantages, case["raw"])


@pytest.mark.parametrize("estimator", [token_gae, bilevel_gae])
def test_golden_answers_at_tokens(shared: Path, estimator: Callable[..., TokenCredit]):
    cases = golden_cases(shared, estimator.__name__)
    assert len(cases) == 20
    for case in cases:
        credit = estimator(from_golden(case), **arguments(case))
        for row, golden in zip(credit.raw, case["raw"], strict=True):
            assert_rows(row, golden)
        for row, golden in zip(credit.returns, case.get("returns", credit.returns), strict=True):
            assert_rows(row, golden)
        flat = [value for item in credit.advantages for step in item for value in step]
        unwhitened = [value for item in credit.raw for step in item for value in step]
        assert flat == pytest.approx(case.get("whitened_flat", unwhitened), abs=1e-6, rel=1e-6)


rewards_lists = st.lists(st.floats(-2, 2), min_size=1, max_size=5)


@st.composite
def batches(draw) -> list[CreditTrajectory]:
    """Two or three groups of ragged trajectories, some truncated, some responses empty."""
    batch = []
    for group in range(draw(st.integers(1, 3))):
        for member in range(draw(st.integers(1, 4))):
            rewards = draw(rewards_lists)
            size = len(rewards)
            fixed = {"min_size": size, "max_size": size}
            values = draw(st.lists(st.floats(-2, 2), **fixed))
            lengths = tuple(draw(st.lists(st.integers(0, 4), **fixed)))
            cut = draw(st.booleans())
            batch.append(
                trajectory(
                    rewards,
                    values,
                    group=group,
                    member=member,
                    lengths=lengths,
                    truncated=cut,
                    final_value=0.7,
                    state_keys=tuple(draw(st.lists(st.sampled_from("abc"), **fixed))),
                )
            )
    return batch


@given(batch=batches(), random=st.randoms())
def test_reordering_trajectories_changes_nothing(batch: list[CreditTrajectory], random):
    order = list(range(len(batch)))
    random.shuffle(order)
    for name in ESTIMATORS:
        straight, shuffled = credited(batch, Settings(name)), credited([batch[i] for i in order], Settings(name))
        assert list(shuffled.advantages) == [straight.advantages[i] for i in order], name
        if straight.returns is not None and shuffled.returns is not None:
            assert list(shuffled.returns) == [straight.returns[i] for i in order], name


@given(batch=batches())
def test_empty_responses_stay_in_credit_and_make_no_nan(batch: list[CreditTrajectory]):
    silent = [replace(item, lengths=(0,) * len(item.lengths)) for item in batch]
    for name in ESTIMATORS:
        credit, emptied = credited(batch, Settings(name)), credited(silent, Settings(name))
        assert [len(row) for row in emptied.advantages] == [len(item.rewards) for item in batch]
        if not ESTIMATORS[name].by_token:  # without a token there is nothing to tell apart
            assert emptied.raw == credit.raw, name
            if not name.startswith("reinforce_pp"):  # whitened over tokens
                assert emptied == credit, name
        assert all(abs(value) < 1e9 for row in credit.advantages + emptied.advantages for value in row), name


@given(reward=st.floats(-5, 5), value=st.floats(-5, 5), lam=st.floats(0, 1), gamma=st.floats(0, 1))
def test_one_step_gae_is_reward_minus_value_for_any_lambda(reward: float, value: float, lam: float, gamma: float):
    credit = estimate([trajectory([reward], [value])], Settings("step_gae", gamma=gamma, lam=lam))
    assert credit.raw == ((reward - value,),)
    assert credit.returns is not None
    assert credit.returns[0][0] == pytest.approx(reward, abs=1e-12)


def test_truncated_is_not_terminated():
    ended = trajectory([0.0, 1.0], [0.5, 0.25], final_value=4.0)
    cut = replace(ended, truncated=True)
    settings = Settings("step_gae", gamma=0.5, lam=1.0)
    assert estimate([ended], settings).returns == ((0.5, 1.0),)
    assert estimate([cut], settings).returns == ((1.5, 3.0),)
    assert estimate([cut], replace(settings, bootstrap_truncated=False)).returns == ((0.5, 1.0),)


@pytest.mark.parametrize("name", sorted(ESTIMATORS))
def test_a_reward_on_the_last_step_reaches_the_first(name: str):
    values = [0.0, 0.0, 0.0]
    won = trajectory([0.0, 0.0, 1.0], values, member=0, state_keys=("a", "b", "c"))
    lost = trajectory([0.0, 0.0, 0.0], values, member=1, state_keys=("a", "b", "d"))
    credit = credited([won, lost], Settings(name))
    assert credit.raw[0][0] > credit.raw[1][0]
    assert credit.advantages[0][0] > credit.advantages[1][0]
    if name != "bilevel_gae":  # the only one that is measured against nothing
        assert credit.advantages[0][0] > 0 > credit.advantages[1][0]


@pytest.mark.parametrize("name", ["grpo", "rloo", "dr_grpo"])
def test_a_group_of_one_keeps_its_return_at_every_step(name: str):
    lone = trajectory([0.25, 0.5], group=3)
    others = [trajectory([1.0], group=4, member=m) for m in range(2)]
    assert estimate([lone, *others], Settings(name)).advantages == ((0.75, 0.75), (0.0,), (0.0,))


def test_grpo_divides_by_the_unbiased_std_of_the_group():
    group = [trajectory([r], member=m) for m, r in enumerate((0.0, 1.0))]
    want = 0.5 / (0.5**0.5 + 1e-6)
    assert estimate(group, Settings("grpo")).advantages == ((pytest.approx(-want),), (pytest.approx(want),))


@given(batch=batches())
def test_rloo_is_the_return_minus_the_mean_of_the_others(batch: list[CreditTrajectory]):
    credit = estimate(batch, Settings("rloo"))
    for item, row in zip(batch, credit.advantages, strict=True):
        others = [t.total_reward for t in batch if t.group == item.group and t.member != item.member]
        baseline = sum(others) / len(others) if others else 0.0
        assert list(row) == pytest.approx([item.total_reward - baseline] * len(row), abs=1e-9)


def test_reinforce_credits_what_followed_and_not_what_came_before():
    credit = estimate([trajectory([1.0, 0.0, 2.0])], Settings("reinforce", gamma=0.5))
    assert credit.raw == ((1.5, 1.0, 2.0),)


def test_a_step_without_reward_is_a_step():
    assert len(estimate([trajectory([0.0, 0.0])], Settings("reinforce")).advantages[0]) == 2


def test_whitening_over_tokens_counts_a_step_as_often_as_it_has_tokens():
    long, short = trajectory([1.0], lengths=(3,)), trajectory([-3.0], member=1, lengths=(1,))
    credit = estimate([long, short], Settings("reinforce_pp"))
    assert credit.advantages == ((pytest.approx(0.5),), (pytest.approx(-1.5),))


def test_gigpo_compares_steps_that_met_the_same_state():
    left = trajectory([0.0, 1.0], member=0, state_keys=("start", "left"))
    right = trajectory([0.0, 0.0], member=1, state_keys=("start", "right"))
    rows = gigpo([left, right], gamma=1.0, step_weight=10.0, divide_by_std=False).advantages
    assert rows == ((0.5 + 10 * 0.5, 0.5), (-0.5 - 10 * 0.5, -0.5))


def test_gigpo_does_not_compare_across_groups():
    first = trajectory([1.0], group=0, state_keys=("a",))
    second = trajectory([0.0], group=1, state_keys=("a",))
    assert gigpo([first, second], gamma=1.0).advantages == ((1.0,), (0.0,))


def test_token_gae_crosses_steps_and_empty_responses():
    item = trajectory([0.0, 2.0, 1.0], lengths=(2, 1, 0), token_values=((0.0, 0.0), (0.0,), ()))
    credit = token_gae([item], gamma=0.5, lam=1.0, bootstrap_truncated=True)
    assert credit.returns == (((0.75, 1.5), (3.0,), ()),)


def test_bilevel_gae_treats_a_step_without_reward_as_a_step():
    item = trajectory([0.0, 1.0], [0.0, 0.0], lengths=(1, 2), token_values=((0.0,), (0.0, 0.0)))
    credit = bilevel_gae([item], gamma_step=0.5, gamma=0.9)
    assert credit.returns == (((0.5,), (0.9, 1.0)),)


def test_estimators_say_what_they_miss():
    with pytest.raises(ConfigError, match="'remax' needs a greedy rollout"):
        remax([trajectory([1.0])])
    with pytest.raises(ConfigError, match=r"needs the reward part 'env'.*info\['reward/env'\]"):
        layered([trajectory([1.0])])
    with pytest.raises(ConfigError, match="one value of the critic at each trained token"):
        token_gae([trajectory([1.0])], gamma=1.0, lam=1.0, bootstrap_truncated=True)


def test_an_unknown_estimator_raises_and_suggests():
    with pytest.raises(UnknownNameError, match="Did you mean 'step_gae'"):
        estimate([trajectory([1.0])], Settings("step_gea"))


def test_step_gae_without_values_says_what_to_do():
    with pytest.raises(ConfigError, match="needs the critic's values"):
        estimate([trajectory([1.0])], Settings("step_gae"))


def test_records_of_unequal_length_are_refused():
    with pytest.raises(ValueError, match="2 rewards, 1 lengths"):
        CreditTrajectory(group=0, member=0, rewards=(1.0, 2.0), lengths=(1,))


def test_flat_groups_are_those_with_equal_returns():
    batch = [
        trajectory([0.1, 0.2, 0.3], group=0, member=0),
        trajectory([0.3, 0.2, 0.1], group=0, member=1),
        trajectory([0.0], group=1, member=0),
        trajectory([1.0], group=1, member=1),
        trajectory([1.0], group=2, member=0),
    ]
    assert flat_groups(batch) == {0}


def test_kl_is_subtracted_from_each_steps_own_reward():
    assert subtract_kl((0.0, 1.0), (2.0, -4.0), 0.5) == (-1.0, 3.0)


@pytest.mark.parametrize("over", ["batch", "group"])
@given(batch=batches(), seed=st.integers(0, 5))
def test_permuting_exchanges_returns_and_nothing_else(over, batch: list[CreditTrajectory], seed: int):
    permuted = permute_rewards(batch, over, seed)

    def without_rewards(item: CreditTrajectory):
        return item.group, item.member, item.lengths, item.values, item.truncated

    assert [without_rewards(item) for item in permuted] == [without_rewards(item) for item in batch]
    for group in {item.group for item in batch} if over == "group" else [None]:
        before = sorted(t.total_reward for t in batch if group in (None, t.group))
        after = sorted(t.total_reward for t in permuted if group in (None, t.group))
        assert after == pytest.approx(before, abs=1e-9)
    assert permute_rewards(batch[::-1], over, seed) == permuted[::-1]


def test_reward_streams_are_permuted_with_the_rewards():
    batch = [complete(trajectory([float(at), 2.0 * at], member=at)) for at in range(6)]
    permuted = permute_rewards(batch, "batch", 1)
    assert [item.rewards for item in permuted] != [item.rewards for item in batch]
    assert all(item.parts == complete(replace(item, parts={})).parts for item in permuted)


@pytest.mark.parametrize(("length", "wanted"), [(0, 0.0), (80, 0.0), (81, -0.05), (90, -0.5), (100, -1.0), (120, -1.0)])
def test_overlong_responses_are_charged_linearly_in_the_buffer(length: int, wanted: float):
    assert overlong_penalty(length, 100, 0.2) == pytest.approx(wanted)


def test_permuted_rewards_keep_the_last_reward_last():
    long, short = trajectory([1.0, 2.0, 4.0], member=0), trajectory([8.0], member=1)
    swapped = next(p for seed in range(9) if (p := permute_rewards([long, short], "group", seed))[1].rewards != (8.0,))
    assert [item.rewards for item in swapped] == [(0.0, 0.0, 8.0), (7.0,)]
