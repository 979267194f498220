"""What a client may ask of an environment, and what it is answered. Plain functions; they know no server.

    {"do": "reset", "seed": s, "options": {...} or null}   {"observation", "info", "rng"}
    {"do": "step", "action": text}                         {"observation", "reward", "terminated", "truncated", "info"}
    {"do": "render"}                                       {"value"}
    {"do": "get", "name": attribute}                       {"value"}; of a method, what it returns
    {"do": "set_state", "state": {...}}                    {"value"}

A reset without a seed goes on with the environment's generator. Its answer tells the generator's state before it, as
`rng`; a reset that is sent such an `rng` starts from there, so that an episode can be played again in another process.
"""

import inspect
from collections.abc import Mapping
from typing import Any

import gymnasium

from agentr1_envs.errors import WireError
from agentr1_envs.wire import dumps, pack_space
from agentr1_envs.wire_errors import pack_error

READABLE = (
    "system_prompt",
    "tool_schemas",
    "tools_in_template",
    "stop",
    "training_only",
    "task_ids",
    "demonstration",
    "expert",
    "get_state",
)
"""Names a client may read, where the environment has them; nothing else is reachable."""

AnyEnv = gymnasium.Env[Any, Any]


def describe(env: AnyEnv) -> dict[str, Any]:
    """What a client must know of an environment before it plays.

    Returns:
        `observation_space` and `action_space`, `metadata` (of rendering), `values` and `methods` (names it has).

    Raises:
        WireError: a space is none of text.
    """
    found = {name: static for name in (*READABLE, "set_state") if (static := _static(env, name)) is not None}
    methods = [name for name, static in found.items() if callable(static)]
    return {
        "observation_space": pack_space(env.observation_space),
        "action_space": pack_space(env.action_space),
        "metadata": {name: env.metadata[name] for name in ("render_modes", "render_fps") if name in env.metadata},
        "values": [name for name in found if name not in methods],
        "methods": methods,
    }


def answer(env: AnyEnv, asked: Mapping[str, Any]) -> str:
    """Do what is asked; whatever the environment raises is part of the answer. For the environment's own thread."""
    number = asked["number"]
    try:
        return dumps({"number": number, "result": _perform(env, asked)}, "the answer of the environment")
    except BaseException as error:  # a SystemExit of an environment is no reason to end its thread
        return refusal(error, number)


def refusal(error: BaseException, number: int | None = None, *, final: bool = False) -> str:
    """An error as an answer; `final` when the session is over with it."""
    return dumps({"number": number, "error": pack_error(error), "final": final})


def _perform(env: AnyEnv, asked: Mapping[str, Any]) -> dict[str, Any]:
    match asked:
        case {"do": "reset", "seed": seed, "options": options}:
            return _reset(env, seed, options, asked.get("rng"))
        case {"do": "step", "action": action}:
            observation, reward, terminated, truncated, info = env.step(action)
            return {
                "observation": observation,
                "reward": reward,
                "terminated": terminated,
                "truncated": truncated,
                "info": info,
            }
        case {"do": "render"}:
            return {"value": env.render()}
        case {"do": "get", "name": name} if name in READABLE:
            value = env.get_wrapper_attr(name)
            return {"value": value() if callable(value) else value}
        case {"do": "set_state", "state": state}:
            return {"value": env.get_wrapper_attr("set_state")(state)}
        case _:
            raise WireError(f"There is nothing of this form to ask: {str(dict(asked))[:200]}.")


def _reset(env: AnyEnv, seed: int | None, options: dict[str, Any] | None, rng: Any) -> dict[str, Any]:
    if rng is not None:
        env.unwrapped.np_random.bit_generator.state = rng
    before = env.unwrapped.np_random.bit_generator.state if seed is None else None
    observation, info = env.reset(seed=seed, options=options)
    return {"observation": observation, "info": info, "rng": before}


def _static(env: AnyEnv, name: str) -> object | None:
    """What stands under a name, in the environment or in one it wraps, without running it: it may load the data."""
    layer: AnyEnv = env
    while True:
        found = inspect.getattr_static(layer, name, None)
        if found is not None or not isinstance(layer, gymnasium.Wrapper):
            return found
        layer = layer.env  # pyright: ignore[reportUnknownMemberType, reportUnknownVariableType]
