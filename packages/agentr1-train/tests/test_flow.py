"""The default flow: records tell what was sampled, limits cut as designed, a faulty environment is data."""

import asyncio
import dataclasses
import time
from typing import Any

import gymnasium
import pytest
from agentr1_train.config import EnvConfig, RolloutConfig
from agentr1_train.env_pool import EnvPool
from agentr1_train.flow import AgentEnvLoop, Episode
from agentr1_train.renderer import Renderer
from agentr1_train.sampler.base import Completion, Prompt, SamplingParams
from agentr1_train.sampler.batching import BatchingSampler
from agentr1_train.sampler.hf import HFSampler
from agentr1_train.sampler.scripted import ScriptedSampler
from agentr1_train.trajectory import Trajectory

SETTINGS = RolloutConfig(max_prompt_tokens=400, max_response_tokens=40)


def play(
    tokenizer: Any,
    script: Any,
    *,
    env: str = "stranger/Echo-v0",
    settings: RolloutConfig = SETTINGS,
    seed: int = 0,
    options: dict[str, Any] | None = None,
    timeout_s: float = 20.0,
    **kwargs: Any,
) -> tuple[Trajectory, "Recorder"]:
    """Play one episode with a scripted sampler, and return what it recorded beside."""
    sampler = Recorder(script if hasattr(script, "sample") else ScriptedSampler(tokenizer, script))
    config = EnvConfig(id=env, kwargs=kwargs, reset_timeout_s=timeout_s, step_timeout_s=timeout_s)
    flow = AgentEnvLoop(Renderer(tokenizer, context=settings.context), settings)

    async def run() -> list[Trajectory]:
        handle = await pool.acquire()
        batching = BatchingSampler(sampler)
        try:
            return await flow.run(Episode(handle, batching, seed, options, 3, 1, (0, 0, 3, 1)))
        finally:
            pool.release(handle)
            await batching.close()

    with EnvPool(config) as pool:
        (trajectory,) = asyncio.run(run())
    return trajectory, sampler


class Recorder:
    """Passes everything through and remembers it."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.seen = inner, []
        self.policy_version = inner.policy_version

    def sample(self, prompts: list[Prompt], params: SamplingParams) -> list[Completion]:
        done = self.inner.sample(prompts, params)
        self.seen += list(zip(prompts, done, [params] * len(done), strict=True))
        return done


def say(word: str) -> Any:
    return lambda prompt, key: f"I say {word}"


def test_an_episode_of_a_stranger_is_recorded_as_it_was_sampled(tiny_tokenizer) -> None:
    script = lambda prompt, key: "who knows" if key[-1] == 0 else "left right up down"  # noqa: E731
    trajectory, sampler = play(tiny_tokenizer, script)
    assert (trajectory.end_reason, trajectory.success, trajectory.error) == ("terminated", True, None)
    assert (trajectory.env_id, trajectory.seed, trajectory.group, trajectory.member) == ("stranger/Echo-v0", 0, 3, 1)
    assert trajectory.rewards == (0.0, 1.0)
    first, second = trajectory.steps
    assert [(s.prompt_ids, s.response_ids, s.response_logprobs) for s in trajectory.steps] == [
        (prompt.ids, done.ids, done.logprobs) for prompt, done, _ in sampler.seen
    ]
    assert [prompt.key for prompt, _, _ in sampler.seen] == [(0, 0, 3, 1, 0), (0, 0, 3, 1, 1)]
    assert second.prompt_ids[: len(first.prompt_ids + first.response_ids)] == first.prompt_ids + first.response_ids
    assert (first.action, first.terminated, first.truncated) == ("who knows", False, False)
    assert first.observation.startswith("say ")
    assert second.observation == "you said 'who knows'"
    assert (second.terminated, second.truncated) == (True, False)
    assert trajectory.final_observation == "you said 'left right up down'"
    assert trajectory.final_prompt_ids == ()
    assert trajectory.metrics == {"said": 18.0}
    assert len({s.state_key for s in trajectory.steps}) == 2


def test_a_state_is_the_newest_observation_and_not_the_way_to_it(tiny_tokenizer) -> None:
    steps = play(tiny_tokenizer, lambda prompt, key: "who knows")[0].steps
    assert [step.observation for step in steps[1:]] == ["you said 'who knows'"] * 2
    assert steps[1].prompt_ids != steps[2].prompt_ids
    assert steps[0].state_key != steps[1].state_key == steps[2].state_key
    elsewhere = play(tiny_tokenizer, lambda prompt, key: "who knows" if key[-1] else "right?")[0].steps
    assert elsewhere[2].state_key == steps[2].state_key


def test_the_end_token_is_trained_and_not_told_to_the_environment(tiny_tokenizer) -> None:
    trajectory, _ = play(tiny_tokenizer, say("left right up down"))
    (step,) = trajectory.steps
    assert step.response_ids[-1] == tiny_tokenizer.eos_token_id
    assert step.action == "I say left right up down"


def test_the_end_token_that_closes_a_cut_response_is_context_and_never_trained(tiny_tokenizer) -> None:
    """A response cut at its limit has no end token; the one that the template needs stands in the next prompt only."""
    settings = dataclasses.replace(SETTINGS, max_response_tokens=4)
    trajectory, sampler = play(tiny_tokenizer, say("a long story"), settings=settings, turns=2)
    end = tiny_tokenizer.eos_token_id
    first, second = trajectory.steps
    assert first.finish_reason == "length"
    assert first.response_ids == sampler.seen[0][1].ids
    assert end not in first.response_ids
    assert len(first.response_logprobs) == len(first.response_ids) == 4
    closed = second.prompt_ids[len(first.prompt_ids) + 4]
    assert closed == end


def test_the_observation_of_reset_is_what_the_first_prompt_shows(tiny_tokenizer) -> None:
    trajectory, _ = play(tiny_tokenizer, say("no"), turns=1)
    (step,) = trajectory.steps
    assert step.observation in ("say left", "say right", "say up", "say down")
    assert step.observation in tiny_tokenizer.decode(step.prompt_ids)


def test_a_real_model_plays_and_its_ids_are_the_recorded_ones(tiny_model, tiny_tokenizer) -> None:
    settings = dataclasses.replace(SETTINGS, max_response_tokens=9)
    trajectory, sampler = play(tiny_tokenizer, HFSampler(tiny_model, tiny_tokenizer), settings=settings, turns=4)
    assert trajectory.end_reason == "env_truncated"
    assert len(trajectory.steps) == 4
    assert [s.response_ids for s in trajectory.steps] == [done.ids for _, done, _ in sampler.seen]
    assert [s.finish_reason for s in trajectory.steps] == [done.finish_reason for _, done, _ in sampler.seen]
    for before, after in zip(trajectory.steps, trajectory.steps[1:], strict=False):
        seen = before.prompt_ids + before.response_ids
        assert after.prompt_ids[: len(seen)] == seen
    assert trajectory.steps[-1].truncated
    assert not trajectory.success
    last = trajectory.steps[-1].prompt_ids + trajectory.steps[-1].response_ids
    assert trajectory.final_prompt_ids[: len(last)] == last
    assert tiny_tokenizer.decode(trajectory.final_prompt_ids).endswith("<|im_start|>assistant\n")


def test_max_steps_cuts_and_renders_what_would_have_followed(tiny_tokenizer) -> None:
    trajectory, _ = play(tiny_tokenizer, say("no"), settings=dataclasses.replace(SETTINGS, max_steps=2), turns=5)
    assert trajectory.end_reason == "max_steps"
    assert [step.truncated for step in trajectory.steps] == [False, True]
    assert len(trajectory.final_prompt_ids) > len(trajectory.steps[-1].prompt_ids)


def test_a_prompt_over_the_limit_ends_the_trajectory_and_is_counted(tiny_tokenizer) -> None:
    first = len(play(tiny_tokenizer, say("no"))[0].steps[0].prompt_ids)
    settings = dataclasses.replace(SETTINGS, max_prompt_tokens=first)
    trajectory, _ = play(tiny_tokenizer, say("no"), settings=settings)
    assert trajectory.end_reason == "prompt_too_long"
    assert [step.truncated for step in trajectory.steps] == [True]
    assert trajectory.truncated
    assert len(trajectory.final_prompt_ids) > first
    trajectory, _ = play(tiny_tokenizer, say("no"), settings=dataclasses.replace(settings, max_prompt_tokens=first - 1))
    assert (trajectory.end_reason, trajectory.steps) == ("prompt_too_long", ())
    assert trajectory.final_observation.startswith("say ")


def test_a_final_prompt_longer_than_any_row_is_left_out(tiny_tokenizer) -> None:
    settings = dataclasses.replace(SETTINGS, max_prompt_tokens=30, max_response_tokens=2)
    trajectory, _ = play(tiny_tokenizer, say("no"), settings=settings)
    assert (trajectory.end_reason, trajectory.final_prompt_ids) == ("prompt_too_long", ())


def test_token_caps_hold_for_each_step_and_for_the_episode(tiny_tokenizer) -> None:
    settings = dataclasses.replace(SETTINGS, max_response_tokens=6, max_trajectory_tokens=10)
    trajectory, sampler = play(tiny_tokenizer, say("a long story about nothing"), settings=settings, turns=9)
    assert [len(step.response_ids) for step in trajectory.steps] == [6, 4]
    assert [prompt.max_tokens for prompt, _, _ in sampler.seen] == [6, 4]
    assert [step.finish_reason for step in trajectory.steps] == ["length", "length"]
    assert trajectory.end_reason == "token_budget"


def test_an_empty_response_is_a_step(tiny_tokenizer) -> None:
    class Silent:
        policy_version = 7

        def sample(self, prompts: list[Prompt], params: SamplingParams) -> list[Completion]:
            return [Completion((), (), "stop") for _ in prompts]

    trajectory, _ = play(tiny_tokenizer, Silent(), turns=2)
    assert [(s.response_ids, s.action, s.policy_version) for s in trajectory.steps] == [((), "", 7)] * 2
    assert trajectory.end_reason == "env_truncated"


@pytest.mark.parametrize(
    ("fail", "reason", "steps"),
    [
        ("reset", "reset: ValueError: no such game", 0),
        ("step", "step 0: KeyError: 'inventory'", 1),
        ("nan", "step 0: the reward is nan (float); a finite number is needed", 1),
        ("type", "step 0: the reward is 'one' (str); a finite number is needed", 1),
        ("hang_reset", "reset: TimeoutError: no answer within 2 s", 0),
        ("hang_step", "step 0: TimeoutError: no answer within 2 s", 1),
    ],
)
def test_what_an_environment_does_wrong_is_data(tiny_tokenizer, fail, reason, steps) -> None:
    started = time.perf_counter()
    trajectory, sampler = play(tiny_tokenizer, say("left right up down"), fail=fail, timeout_s=2.0)
    assert (trajectory.end_reason, trajectory.error) == ("error", reason)
    assert len(trajectory.steps) == steps == len(sampler.seen)
    assert not trajectory.success
    assert trajectory.total_reward == 0.0
    if steps:  # what was sampled is kept, though its answer never came
        assert trajectory.steps[0].response_ids == sampler.seen[0][1].ids
        assert trajectory.steps[0].truncated
    assert time.perf_counter() - started < 20  # it hangs for 30 s


class OddEnv(gymnasium.Env[Any, str]):
    """Returns what it is told to."""

    observation_space = gymnasium.spaces.Text(10)
    action_space = gymnasium.spaces.Text(10)
    system_prompt = "Be brief."
    stop = ("STOP",)

    def __init__(self, first: Any = ("go", {}), answer: Any = None, raises: Any = None) -> None:
        self.first, self.answer, self.raises = first, answer, raises

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> Any:
        return self.first

    def step(self, action: str) -> Any:
        if self.raises:
            raise self.raises
        return self.answer


@pytest.fixture(autouse=True)
def _odd_env() -> None:
    if "stranger/Odd-v0" not in gymnasium.registry:
        gymnasium.register("stranger/Odd-v0", entry_point=OddEnv, order_enforce=False)


@pytest.mark.parametrize(
    ("first", "answer", "reason"),
    [
        ((None, {}), None, r"reset: the observation is None \(NoneType\); a str, or messages"),
        (([], {}), None, "reset: the observation is"),
        (("a\ud800", {}), None, "reset: UnicodeEncodeError"),
        ("go", None, r"reset: reset returned 'go' \(str\), not"),
        (("go", {}), ("on", 1.0, True, {}), "step 0: step returned"),
        (("go", {}), (7, 1.0, True, False, {}), r"step 0: the observation is 7 \(int\)"),
        (("go", {}), ("on", 1.0, True, False, None), "step 0: info is None"),
        (("go", {}), ("on", float("inf"), True, False, {}), "step 0: the reward is inf"),
        (("go", {}), ("on", 0.0, True, False, {"reward/env": float("nan")}), r"step 0: info\['reward/env'\] is nan"),
    ],
)
def test_answers_of_a_wrong_shape_are_named(tiny_tokenizer, first, answer, reason) -> None:
    trajectory, _ = play(tiny_tokenizer, say("x"), env="stranger/Odd-v0", first=first, answer=answer)
    assert trajectory.end_reason == "error"
    import re

    assert re.match(reason, trajectory.error or "")


@pytest.mark.parametrize("raises", [SystemExit(3), StopIteration("over")])
def test_an_environment_that_exits_does_not_end_the_run(tiny_tokenizer, raises) -> None:
    trajectory, _ = play(tiny_tokenizer, say("x"), env="stranger/Odd-v0", raises=raises)
    assert trajectory.error is not None
    assert trajectory.error.startswith(f"step 0: RuntimeError: {type(raises).__name__}")


def test_info_gives_success_parts_state_and_metrics(tiny_tokenizer) -> None:
    info = {
        "success": False,
        "reward/task": 0.25,
        "reward/env": 1,
        "em": True,
        "f1": 0.5,
        "calls": 3,
        "note": "text",
        "worst": float("nan"),
        "task_id": "t-7",
        "state_key": "room 3",
    }
    trajectory, sampler = play(
        tiny_tokenizer,
        say("x"),
        env="stranger/Odd-v0",
        first=("go", {"state_key": "room 2", "task_id": "t-7"}),
        answer=("on", 1.25, True, True, info),
    )
    (step,) = trajectory.steps
    assert not trajectory.success  # the environment's word goes before its reward
    assert trajectory.task_id == "t-7"
    assert trajectory.end_reason == "terminated"
    assert (step.terminated, step.truncated) == (True, False)
    assert step.reward_parts == {"task": 0.25, "env": 1.0}
    assert step.state_key == "room 2"  # the state that was acted in, not the one that followed
    assert trajectory.metrics == {"success": 0.0, "em": 1.0, "f1": 0.5, "calls": 3.0}
    _, _, params = sampler.seen[0]
    assert params.stop == ("STOP",)
    assert "<|im_start|>system\nBe brief.<|im_end|>" in tiny_tokenizer.decode(step.prompt_ids)


def test_replace_shows_only_the_newest_observation(tiny_tokenizer) -> None:
    settings = dataclasses.replace(SETTINGS, context="replace")
    trajectory, _ = play(tiny_tokenizer, say("no"), settings=settings)
    texts = [tiny_tokenizer.decode(step.prompt_ids) for step in trajectory.steps]
    assert texts[1] == "<|im_start|>user\nyou said 'I say no'<|im_end|>\n<|im_start|>assistant\n"
    assert "you said" in tiny_tokenizer.decode(trajectory.final_prompt_ids)
