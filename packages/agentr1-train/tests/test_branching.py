"""Episodes that branch: who shares what, the same tree at any width, environments copied or played again."""

import dataclasses
import hashlib
import time
from typing import Any

import gymnasium
import pytest
from agentr1_train.branching import BranchingEnvLoop, surprise
from agentr1_train.config import EnvConfig, RolloutConfig
from agentr1_train.env_pool import EnvPool
from agentr1_train.renderer import Renderer
from agentr1_train.rollout import GroupSpec, collect
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.trajectory import Trajectory, TrajectoryGroup

SETTINGS = RolloutConfig(
    max_prompt_tokens=2000, max_response_tokens=20, branch_width=2, branch_probability=1.0, branch_surprise=0.0
)


class DiaryEnv(gymnasium.Env[str, str]):
    """Four steps; says back what it was told so far, and pays for the length of it. Its state is its diary."""

    observation_space = gymnasium.spaces.Text(1000)
    action_space = gymnasium.spaces.Text(1000)
    calls: dict[str, int] = {"reset": 0, "step": 0, "set_state": 0}  # noqa: RUF012 (of all of them together)

    def __init__(self, moody: bool = False, slow_s: float = 0.0) -> None:
        self.moody, self.slow_s = moody, slow_s

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        DiaryEnv.calls["reset"] += 1
        self.told = [str(seed)]
        return self._say(), {}

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        DiaryEnv.calls["step"] += 1
        time.sleep(self.slow_s)
        self.told.append(action)
        return self._say(), float(len(action)), len(self.told) == 5, False, {}

    def _say(self) -> str:
        mood = f" at {time.perf_counter()}" if self.moody else ""
        return " ".join(self.told) + mood


class CopiedDiaryEnv(DiaryEnv):
    def get_state(self) -> list[str]:
        return self.told

    def set_state(self, state: list[str]) -> None:
        DiaryEnv.calls["set_state"] += 1
        self.told = state  # handed on as it is: the trainer must not give one list to two environments


class ForgettingWrapper(gymnasium.Wrapper[str, str, str, str]):
    """Keeps a count of its own, which nobody can copy."""

    def reset(self, **kwargs: Any) -> tuple[str, dict[str, Any]]:
        self.steps = 0
        return self.env.reset(**kwargs)

    def step(self, action: str) -> tuple[str, Any, bool, bool, dict[str, Any]]:
        self.steps += 1
        observation, *rest = self.env.step(action)
        return f"{self.steps}: {observation}", *rest


@pytest.fixture(autouse=True)
def _register() -> None:
    makers = {"Diary-v0": DiaryEnv, "CopiedDiary-v0": CopiedDiaryEnv}
    makers |= {"WrappedDiary-v0": lambda **kwargs: ForgettingWrapper(CopiedDiaryEnv(**kwargs))}
    for name, entry_point in makers.items():
        if f"stranger/{name}" not in gymnasium.registry:
            gymnasium.register(f"stranger/{name}", entry_point=entry_point)
    DiaryEnv.calls.update(dict.fromkeys(DiaryEnv.calls, 0))


def by_key(prompt: str, key: tuple[int, ...]) -> str:
    return f"w{int(hashlib.blake2b(repr(key).encode(), digest_size=4).hexdigest(), 16) % 997}"


def roll(
    tokenizer: Any,
    env: str = "CopiedDiary",
    sampler: Any = None,
    settings: RolloutConfig = SETTINGS,
    size: int = 1,
    concurrency: int = 8,
    **kwargs: Any,
) -> list[TrajectoryGroup]:
    flow = BranchingEnvLoop(Renderer(tokenizer), settings)
    with EnvPool(EnvConfig(id=f"stranger/{env}-v0", kwargs=kwargs)) as pool:
        return collect(
            pool,
            sampler or ScriptedSampler(tokenizer, by_key),
            flow,
            [GroupSpec(0, 5), GroupSpec(1, 6)],
            group_size=size,
            key=(3, 0, 0),
            concurrency=concurrency,
        )


def untimed(groups: list[TrajectoryGroup]) -> list[Trajectory]:
    def without(item: Trajectory) -> Trajectory:
        steps = (dataclasses.replace(step, sample_s=0.0, env_s=0.0) for step in item.steps)
        return dataclasses.replace(item, steps=tuple(steps))

    return [without(item) for group in groups for item in group.trajectories]


def test_an_episode_becomes_a_tree_of_trajectories(tiny_tokenizer) -> None:
    group = roll(tiny_tokenizer)[0]
    items = group.trajectories
    assert [item.member for item in items] == [0, 1, 2, 3]
    # Branches after the first answer (room for 2 and 2), and each of the two once more after the second.
    assert [(item.origin, item.shared_steps) for item in items] == [(None, 0), (0, 1), (1, 2), (0, 2)]
    assert all(item.error is None and len(item.steps) == 4 for item in items)
    for item in items[1:]:
        origin = items[item.origin or 0]
        assert item.steps[: item.shared_steps] == origin.steps[: item.shared_steps]
        mine, theirs = item.steps[item.shared_steps], origin.steps[item.shared_steps]
        assert mine.prompt_ids == theirs.prompt_ids
        assert mine.response_ids != theirs.response_ids
    for item in items:  # each environment stood where its trajectory says
        assert item.final_observation == " ".join(["5", *(step.action for step in item.steps)])
    assert len({item.final_observation for item in items}) == 4


def test_the_limit_is_dealt_to_the_branches(tiny_tokenizer) -> None:
    for limit, wanted in ((2, 2), (3, 3), (8, 8), (100, 8)):
        settings = dataclasses.replace(SETTINGS, branch_limit=limit)
        assert len(roll(tiny_tokenizer, settings=settings)[0].trajectories) == wanted
    wide = dataclasses.replace(SETTINGS, branch_width=3, branch_limit=100)
    assert len(roll(tiny_tokenizer, settings=wide)[0].trajectories) == 27
    never = dataclasses.replace(SETTINGS, branch_probability=0.0)
    assert len(roll(tiny_tokenizer, settings=never)[0].trajectories) == 1


def test_members_of_a_group_are_numbered_through_and_origins_with_them(tiny_tokenizer) -> None:
    group = roll(tiny_tokenizer, size=2)[1]
    assert [item.member for item in group.trajectories] == list(range(8))
    assert [item.origin for item in group.trajectories] == [None, 0, 1, 0, None, 4, 5, 4]
    assert len({item.final_observation for item in group.trajectories}) == 8


@pytest.mark.parametrize("env", ["CopiedDiary", "Diary"])
def test_the_tree_is_the_same_at_any_width_and_whatever_answers_late(env: str, tiny_tokenizer) -> None:
    wanted = untimed(roll(tiny_tokenizer, env, size=2, concurrency=1))
    assert untimed(roll(tiny_tokenizer, env, size=2, slow_s=0.01)) == wanted
    assert {item.env_id for item in wanted} == {f"stranger/{env}-v0"}


def test_a_copied_and_a_replayed_episode_are_the_same(tiny_tokenizer) -> None:
    copied = untimed(roll(tiny_tokenizer, "CopiedDiary"))
    assert DiaryEnv.calls == {"reset": 8, "step": 2 * (4 + 3 + 2 + 2), "set_state": 6}
    DiaryEnv.calls.update(dict.fromkeys(DiaryEnv.calls, 0))
    replayed = untimed(roll(tiny_tokenizer, "Diary"))
    assert DiaryEnv.calls == {"reset": 8, "step": 2 * 4 * 4, "set_state": 0}
    assert [dataclasses.replace(item, env_id="") for item in replayed] == [
        dataclasses.replace(item, env_id="") for item in copied
    ]


def test_behind_a_wrapper_with_a_memory_the_episode_is_played_again(tiny_tokenizer) -> None:
    items = roll(tiny_tokenizer, "WrappedDiary")[0].trajectories
    assert DiaryEnv.calls["set_state"] == 0
    assert all(item.final_observation.startswith("4: ") for item in items)


def test_an_environment_that_answers_otherwise_costs_the_branch_alone(tiny_tokenizer) -> None:
    first, *others = roll(tiny_tokenizer, "Diary", moody=True)[0].trajectories
    assert (first.error, len(first.steps)) == (None, 4)
    assert len(others) == 2  # a branch that never began does not branch again
    for item in others:
        assert item.end_reason == "error"
        assert len(item.steps) == item.shared_steps
        assert item.error is not None
        assert item.error.startswith(f"branch at step {item.shared_steps}: played again with the same seed and actions")


def test_a_sampler_that_fails_in_a_branch_stops_the_rollout(tiny_tokenizer) -> None:
    def script(prompt: str, key: tuple[int, ...]) -> str:
        if len(key) > 6:
            raise MemoryError("no room for another")
        return "w"

    with pytest.raises(MemoryError, match="no room for another"):
        roll(tiny_tokenizer, sampler=ScriptedSampler(tiny_tokenizer, script))


def test_a_real_model_branches_where_it_is_less_sure(tiny_model, tiny_tokenizer) -> None:
    """By surprise alone: at the second step and later, where it is above that of the first."""
    settings = dataclasses.replace(SETTINGS, branch_probability=0.0, branch_surprise=100.0, branch_limit=64)
    items = roll(tiny_tokenizer, sampler=HFSampler(tiny_model, tiny_tokenizer), settings=settings, size=2)
    found = {True: 0, False: 0}
    for item in (item for group in items for item in group.trajectories):
        forks = {other.shared_steps for other in items[item.group].trajectories if other.origin == item.member}
        for at in range(item.shared_steps + 1, 4):
            unsure = surprise(item.steps[at]) > surprise(item.steps[0]) + 0.01
            sure = surprise(item.steps[at]) < surprise(item.steps[0])
            found[unsure] += 1
            assert not (sure and at in forks)
            assert not unsure or at in forks or len(items[item.group].trajectories) > 8
    assert found[True]
    assert found[False]
