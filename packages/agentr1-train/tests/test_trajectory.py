"""Records: what they compute, and that nothing changes them."""

import dataclasses
import pickle
import typing

import pytest
from agentr1_train.trajectory import EndReason, Step, Trajectory, TrajectoryGroup


def step(reward: float, **others) -> Step:
    return Step(
        prompt_ids=(1, 2),
        response_ids=(3,),
        response_logprobs=(-0.5,),
        observation="seen",
        action="said",
        reward=reward,
        terminated=False,
        truncated=False,
        finish_reason="stop",
        state_key="k",
        **others,
    )


def trajectory(*rewards: float, end_reason: EndReason = "terminated") -> Trajectory:
    return Trajectory(tuple(map(step, rewards)), "env", "task", 7, 0, 1, True, end_reason, "the end")


def test_rewards_are_those_of_the_steps_in_order():
    item = trajectory(0.25, 0.0, 1.0)
    assert item.rewards == (0.25, 0.0, 1.0)
    assert item.total_reward == 1.25
    assert trajectory().total_reward == 0


@pytest.mark.parametrize("reason", typing.get_args(EndReason))
def test_only_the_tasks_own_end_is_not_truncated(reason: EndReason):
    assert trajectory(1.0, end_reason=reason).truncated == (reason != "terminated")


def test_success_is_not_read_off_the_end():
    assert trajectory(1.0, end_reason="max_steps").success


def test_records_are_frozen_and_cross_processes():
    group = TrajectoryGroup(0, 7, (trajectory(1.0),))
    assert pickle.loads(pickle.dumps(group)) == group
    for record in (group, group.trajectories[0], group.trajectories[0].steps[0]):
        name = dataclasses.fields(record)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, None)


def test_mappings_of_one_step_are_not_those_of_another():
    assert step(0.0).reward_parts is not step(0.0).reward_parts
    assert step(0.0, reward_parts={"task": 1.0}).reward_parts == {"task": 1.0}
