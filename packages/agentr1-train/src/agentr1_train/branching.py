"""Episodes that branch where the environment has answered, as ARPO does at tool results (arXiv 2507.19849).

At a branching point several responses are sampled from one prompt, and each is played on in an environment of its
own: copied with ``get_state``/``set_state`` where the environment can, and otherwise played again from the start and
compared. The steps before it stand in all trajectories and were played once; how they are credited is the business of
``advantages/branches.py``. Which episodes branch depends on noise keys and tokens, never on timing.

Ours, beside ARPO: how sure a response begins is read off the log-probabilities of its first sampled tokens and not off
the whole distribution, which samplers do not return; the tree is as wide as ``branch_width`` at each point, and
``branch_limit`` is dealt to the branches evenly.
"""

import asyncio
import copy
import dataclasses
from collections.abc import Sequence
from typing import Any

from agentr1_train import ops
from agentr1_train.config import RolloutConfig
from agentr1_train.env_pool import TextEnv
from agentr1_train.flow import (
    AgentEnvLoop,
    BadAnswerError,
    Episode,
    Play,
    check_reset,
    check_step,
    failure_reason,
    finish,
)
from agentr1_train.renderer import Renderer, newest_text
from agentr1_train.sampler.draw import uniform_noise
from agentr1_train.trajectory import Step, Trajectory

BEGINNING = 20
"""Tokens of a response that tell how sure it begins."""

_DECISION = -1
"""Ends the noise key of the decision to branch; no prompt's key ends so."""


class BranchingEnvLoop:
    """``AgentEnvLoop`` with episodes that branch; a branch may branch again."""

    def __init__(self, renderer: Renderer, settings: RolloutConfig) -> None:
        """Keep the settings.

        Args:
            renderer: turns observations into prompt ids.
            settings: as for ``AgentEnvLoop``, and when to branch.
        """
        self._loop = AgentEnvLoop(renderer, settings)
        self._settings = settings

    async def run(self, episode: Episode) -> list[Trajectory]:
        """Play one episode; the first trajectory is the one that began with it.

        ``origin`` counts in the list returned.
        """
        return await self._walk(await self._loop.begin(episode), self._settings.branch_limit)

    async def _walk(self, play: Play, room: int) -> list[Trajectory]:
        """Play to the end. ``room``: trajectories that may come of it."""
        branches: list[tuple[int, asyncio.Task[list[Trajectory]]]] = []
        try:
            while play.end_reason is None:
                step = await self._loop.sample(play)
                if step is None:
                    break
                width = min(self._settings.branch_width, room)
                if width > 1 and self._branches_at(play, step):
                    state = await _state(play.episode.env)
                    share = room // width
                    room -= (width - 1) * share
                    for number in range(1, width):
                        branch = self._branch(_twin(play, number), copy.deepcopy(state), share)
                        branches.append((len(play.steps), asyncio.create_task(branch)))
                await self._loop.answer(play, step)
            if branches:
                play.episode.sampler.rest()
            found = await asyncio.gather(*(task for _, task in branches))
        finally:
            for _, task in branches:
                task.cancel()
            await asyncio.gather(*(task for _, task in branches), return_exceptions=True)
        return _joined(finish(play), [at for at, _ in branches], found)

    async def _branch(self, play: Play, state: Any, room: int) -> list[Trajectory]:
        """Bring an environment to where ``play`` stands, and play on from there."""
        assert play.episode.lend is not None
        async with play.episode.sampler.slot(), play.episode.lend() as env:
            play.episode = dataclasses.replace(play.episode, env=env)
            try:
                await _restore(play, state)
            except Exception as error:
                play.end_reason, play.error = "error", failure_reason(f"branch at step {len(play.steps)}", error)
            return await self._walk(play, room)

    def _branches_at(self, play: Play, step: Step) -> bool:
        """Decide by the chance of the settings, more where the response begins less surely than the first one did."""
        born_at = play.path[-2] if play.path else 0
        if len(play.steps) == born_at or play.episode.lend is None:
            return False
        unsure = surprise(step) - surprise(play.steps[0])
        chance = self._settings.branch_probability + self._settings.branch_surprise * unsure
        return float(uniform_noise((*play.episode.key, len(play.steps), *play.path, _DECISION), 1)[0]) < chance


def surprise(step: Step) -> float:
    """Return minus the mean log-probability of a response's first tokens, nats: an estimate of the entropy there."""
    return -ops.mean(step.response_logprobs[:BEGINNING])


def _twin(play: Play, number: int) -> Play:
    """Return the play as it stands, as its ``number``-th branch here: the end of its path says where and which."""
    return dataclasses.replace(play, steps=list(play.steps), path=(*play.path, len(play.steps), number))


async def _state(env: TextEnv) -> Any:
    """Return a copy of the episode; ``None``, which means that it is played again, where that fails too."""
    try:
        return await env.get_state()
    except Exception:
        return None


async def _restore(play: Play, state: Any) -> None:
    """Bring a fresh environment to where the play stands.

    Raises:
        BadAnswerError: played again, it answers otherwise than it did.
        Exception: whatever the environment raised.
    """
    episode = play.episode
    observation, _ = check_reset(await episode.env.reset(episode.seed, episode.options))
    if state is not None:
        await episode.env.set_state(state)
        return
    following = [*(step.observation for step in play.steps[1:]), play.observation]
    same = newest_text(observation) == play.steps[0].observation
    for step, then in zip(play.steps, following, strict=True):
        if same:
            observation, reward, terminated, truncated, _ = check_step(await episode.env.step(step.action))
            same = newest_text(observation) == then and reward == step.reward and not terminated and not truncated
    if not same:
        raise BadAnswerError(
            "played again with the same seed and actions, the environment answers otherwise, and it has no "
            "get_state() and set_state() to copy it by. Set rollout.branch_width = 1"
        )


def _joined(own: Trajectory, places: Sequence[int], branches: Sequence[list[Trajectory]]) -> list[Trajectory]:
    """Lay the trajectories of branches behind the one they left, and count their origins in the whole list."""
    found = [own]
    for at, items in zip(places, branches, strict=True):
        offset = len(found)
        for item in items:
            if item.origin is None:
                found.append(dataclasses.replace(item, origin=0, shared_steps=at))
            else:
                found.append(dataclasses.replace(item, origin=offset + item.origin))
    return found
