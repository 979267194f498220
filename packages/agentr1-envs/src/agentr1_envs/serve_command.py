"""`agentr1-envs serve`: one environment, played by many clients over a WebSocket."""

import hashlib
import json
import sys
from typing import Annotated, Any, cast

import gymnasium
import tyro

from agentr1_envs.errors import EnvsError, SettingError
from agentr1_envs.extras import require
from agentr1_envs.registration import check_registered
from agentr1_envs.serving.calls import AnyEnv, describe
from agentr1_envs.serving.limits import ServingLimits
from agentr1_envs.serving.session import MakeEnv
from agentr1_envs.wire_protocol import TOKEN_VARIABLE, find_token

_DEFAULTS = ServingLimits()


def serve(
    env_id: Annotated[str, tyro.conf.Positional],
    /,
    host: str = "127.0.0.1",
    port: int = 8002,
    env_kwargs: str = "{}",
    token: str | None = None,
    max_sessions: int = _DEFAULTS.max_sessions,
    max_message_bytes: int = _DEFAULTS.max_message_bytes,
    idle_seconds: float = _DEFAULTS.idle_seconds,
    step_seconds: float = _DEFAULTS.step_seconds,
) -> None:
    """Serve an environment to agentr1/Remote-v0, until Ctrl-C. Each session plays an environment of its own.

    Args:
        env_id: A registered id, such as agentr1/GSM8K-v0, or package:id.
        host: Address to listen on; others than 127.0.0.1 only in a network you trust.
        port: Port to listen on; 0 takes a free one, which the first line of output names.
        env_kwargs: JSON object of the environment's arguments, such as '{"split": "test"}'; clients cannot change them.
        token: What clients must bring; by default the value of AGENTR1_ENVS_TOKEN, and without it everyone may play.
        max_sessions: Sessions at the same time; one more is refused.
        max_message_bytes: Longer messages are refused.
        idle_seconds: A session nobody asked anything for so long ends.
        step_seconds: A call of an environment that takes longer ends its session.
    """
    require("serve", "serving an environment")
    from agentr1_envs.serving.app import Served, environment_app
    from agentr1_envs.serving.run import is_local, run

    limits = ServingLimits(max_sessions, max_message_bytes, idle_seconds, step_seconds)
    arguments = _json_object(env_kwargs)
    make_env = _maker(env_id, arguments)
    _try(env_id, make_env)
    token = find_token(token)
    if not token and not is_local(host):
        _warn(f"whoever reaches {host} may play here; ask for a token with --token or {TOKEN_VARIABLE}")
    digest = hashlib.sha256(json.dumps([env_id, arguments], sort_keys=True).encode()).hexdigest()[:16]
    app = environment_app(Served(env_id, digest, make_env, token), limits, _tell_hung)
    run(app, host, port, f"serving {env_id}", max_message_bytes)


def _maker(env_id: str, arguments: dict[str, Any]) -> MakeEnv:
    def make_env(render_mode: str | None) -> AnyEnv:
        kwargs: dict[str, Any] = arguments if render_mode is None else {**arguments, "render_mode": render_mode}
        return gymnasium.make(env_id, disable_env_checker=True, **kwargs)

    return make_env


def _try(env_id: str, make_env: MakeEnv) -> None:
    """Make one environment and close it, so that what is wrong is said before anybody connects."""
    check_registered(env_id)
    try:
        env = make_env(None)
    except (EnvsError, gymnasium.error.Error):
        raise
    except Exception as error:
        raise SettingError(f"{env_id!r} could not be made: {type(error).__name__}: {error}") from error
    try:
        describe(env)
    finally:
        env.close()


def _json_object(text: str) -> dict[str, Any]:
    try:
        value: object = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise SettingError(f"--env-kwargs {text!r} is not JSON: {error}.") from None
    if not isinstance(value, dict):
        raise SettingError(f'--env-kwargs {text!r} must be a JSON object, such as \'{{"split": "test"}}\'.')
    if "render_mode" in value:
        raise SettingError("--env-kwargs: render_mode is the client's to choose; leave it out.")
    return cast("dict[str, Any]", value)


def _tell_hung(hung: int) -> None:
    if hung:
        _warn(f"{hung} environments did not return from their call and were not closed")


def _warn(text: str) -> None:
    print(f"agentr1-envs: warning: {text}", file=sys.stderr, flush=True)
