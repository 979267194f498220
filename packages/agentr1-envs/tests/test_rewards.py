import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.rewards import bounded, hop_reward, resolve_process_reward, success_reward
from agentr1_tools import ToolCall, ToolResult


def test_the_shipped_examples() -> None:
    call, found, nothing = ToolCall("x"), ToolResult.success([1]), ToolResult.success([])
    failed = ToolResult.failure("TIMEOUT", "late")
    by_success, by_found = resolve_process_reward("success"), resolve_process_reward("found")
    assert by_success is not None
    assert by_found is not None
    assert [by_success(call, result) for result in (found, nothing, failed)] == [0.1, 0.1, 0.0]
    assert [by_found(call, result) for result in (found, nothing, failed)] == [0.2, 0.0, 0.0]
    assert resolve_process_reward(None) is None
    assert resolve_process_reward(by_found) is by_found


def test_bounds() -> None:
    assert bounded(0.0, True, (0.1, 0.3)) == 0.0
    assert bounded(1.0, True, (0.1, 0.3)) == 0.3
    assert bounded(1.0, False, None) == 0.0
    assert bounded(-1.0, False, (0.1, 0.3)) == -1.0
    for wrong in (float("nan"), float("inf"), float("-inf")):
        with pytest.raises(SettingError):
            bounded(wrong, True, None)


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_increments_of_a_perfect_episode_sum_to_one(hops: int) -> None:
    paid = sum(hop_reward("increments", k, k + 1, 0.0) for k in range(hops))
    assert paid == pytest.approx((0.1, 0.3, 0.6)[hops - 1])
    assert paid + success_reward("increments", 1.0, hops) == pytest.approx(1.0)


def test_several_hops_of_one_step_pay_together() -> None:
    assert hop_reward("levels", 0, 3, 0.1) == pytest.approx(0.1 + 0.3 + 0.6 + 0.3)
    assert hop_reward("increments", 1, 3, 0.0) == pytest.approx(0.5)
    assert hop_reward("off", 0, 2, 0.1) == pytest.approx(0.2)
    assert hop_reward("levels", 2, 2, 0.1) == 0.0


def test_success_without_hops_pays_in_full_and_failure_nothing() -> None:
    assert success_reward("increments", 1.0, 0) == 1.0
    assert success_reward("increments", 0.0, 2) == 0.0
    assert success_reward("increments", 0.2, 2) == 0.0
    assert success_reward("levels", 0.5, 2) == 0.5
