"""`agentr1/Remote-v0`: an environment that a server plays (`agentr1-envs serve`), as plain Gymnasium."""

import weakref
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Literal

import gymnasium
from gymnasium.error import ClosedEnvironmentError

from agentr1_envs.errors import RemoteError, ReplayError, SessionLostError, SettingError, require_choice
from agentr1_envs.extras import require
from agentr1_envs.wire import unpack_space
from agentr1_envs.wire_errors import raise_error, unpack_error
from agentr1_envs.wire_protocol import find_token

if TYPE_CHECKING:  # websockets is an extra
    from agentr1_envs.remote.session import RemoteSession

OnDisconnect = Literal["error", "replay"]
ON_DISCONNECT: tuple[OnDisconnect, ...] = ("error", "replay")

_TRIES = 3
_FIXED = ("env_id", "settings", "observation_space", "action_space")
_REMEDY = (
    "The episode is lost: call reset() to begin another, or make the environment with on_disconnect='replay', which "
    "takes an episode up where it can."
)


def remote(
    url: str,
    env_id: str,
    *,
    on_disconnect: OnDisconnect = "error",
    reconnect_seconds: float = 30.0,
    token: str | None = None,
    render_mode: str | None = None,
) -> "RemoteEnv":
    """An environment that is played elsewhere, by ``agentr1-envs serve``.

    ## Description
    The environment of the server: its tasks, texts, rewards and errors, the same to the byte as if it were made here.
    What it has of `system_prompt`, `tool_schemas`, `tools_in_template`, `stop`, `training_only`, `task_ids`,
    `demonstration`, `expert`, `get_state` and `set_state` can be read and called here, too.

    ## Action Space
    The server's environment's: `Text`, the model's whole response.

    ## Observation Space
    The server's environment's: `Text` or `Messages`.

    ## Rewards
    The server's environment's.

    ## Starting State
    The server's environment's; `seed` and `options` are handed on.

    ## Episode End
    The server's environment's. A broken connection ends no episode: the session is taken up again. When the server was
    started anew, or ended the session, see `on_disconnect`; nothing goes on with another episode unsaid.

    ## Info
    The server's environment's, with the same keys and types: a tuple stays a tuple.

    ## Arguments
    * `url`: the address the server names, such as ``ws://127.0.0.1:8002`` (also wss, http, https).
    * `env_id`: what it must serve; another is an error.
    * `on_disconnect`: what becomes of an episode whose session is gone. "error" raises `SessionLostError` at each call
      until `reset`. "replay" plays it again in a new session, by its seed, options and actions, and goes on if every
      answer is as it was, or raises `ReplayError`. A reset with a seed needs no session before it: it opens one.
    * `reconnect_seconds`: how long to try to reach a server that was there before; then `RemoteError`.
    * `token`: what the server asks for; by default the value of AGENTR1_ENVS_TOKEN.
    * `render_mode`: of the environment there; "human" is refused.

    ## Example
    ```python
    import subprocess
    import sys
    from pathlib import Path

    import gymnasium

    serve = [Path(sys.executable).with_name("agentr1-envs"), "serve", "agentr1/GSM8K-v0", "--port", "0"]
    server = subprocess.Popen(serve, stdout=subprocess.PIPE, text=True)
    url = server.stdout.readline().partition(" at ")[2].split()[0]
    env = gymnasium.make("agentr1_envs:agentr1/Remote-v0", url=url, env_id="agentr1/GSM8K-v0")
    question, info = env.reset(seed=0)
    for response in env.get_wrapper_attr("demonstration")():
        observation, reward, terminated, truncated, info = env.step(response)
    assert terminated and info["success"]
    env.close()
    server.terminate()
    server.communicate()
    ```

    ## References
    The protocol is this project's own: JSON over a WebSocket, in `agentr1_envs.wire_protocol`.

    ## Version History
    v0: first version.
    """
    require("remote", "agentr1/Remote-v0")
    return RemoteEnv(
        url,
        env_id,
        on_disconnect=on_disconnect,
        reconnect_seconds=reconnect_seconds,
        token=token,
        render_mode=render_mode,
    )


class RemoteEnv(gymnasium.Env[Any, str]):
    """An environment at a server; see `remote`. Closing it, forgetting it or ending the program ends its session."""

    def __init__(
        self,
        url: str,
        env_id: str,
        *,
        on_disconnect: OnDisconnect = "error",
        reconnect_seconds: float = 30.0,
        token: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        """Open a session.

        Raises:
            SettingError: an argument is out of range. RemoteError: the server cannot be reached, or refuses.
        """
        require_choice("on_disconnect", on_disconnect, ON_DISCONNECT)
        if not reconnect_seconds >= 0:
            raise SettingError(f"reconnect_seconds={reconnect_seconds} must be at least 0.")
        from agentr1_envs.remote.journal import Journal

        self._url, self._env_id, self._on_disconnect = url, env_id, on_disconnect
        self._reconnect_seconds = reconnect_seconds
        self._token = find_token(token)
        self.render_mode = render_mode
        self._journal = Journal() if on_disconnect == "replay" else None
        self._playing = False  # an episode has begun that could get lost
        self._lost = ""
        """What to say at each call until a reset; empty while there is a session, or can be another."""
        self._closed = False
        self._session = self._open(wait=False)
        self._fixed = _fixed(self._session)
        told = self._session.description
        self._values, self._methods = frozenset(told["values"]), frozenset(told["methods"])
        self.metadata = {"render_modes": [], **told["metadata"]}
        self.observation_space = unpack_space(told["observation_space"])
        self.action_space = unpack_space(told["action_space"])

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[Any, dict[str, Any]]:
        """Start an episode; what the environment raises is raised here."""
        super().reset(seed=seed)
        result = self._ask({"do": "reset", "seed": seed, "options": options})
        self._playing = True
        return result["observation"], result["info"]

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Play one response; what the environment raises is raised here."""
        result = self._ask({"do": "step", "action": action})
        return (
            result["observation"],
            result["reward"],
            result["terminated"],
            result["truncated"],
            result["info"],
        )

    def render(self) -> Any:
        """What the environment renders."""
        return self._ask({"do": "render"})["value"]

    def close(self) -> None:
        """End the session. Nothing can be asked afterwards."""
        self._closed = True
        self._finalizer.detach()
        self._session.close()

    def __getattr__(self, name: str) -> Any:
        """What the environment has beside Gymnasium's own; see `remote`."""
        if not name.startswith("_"):
            if name in self._values:
                return self._ask({"do": "get", "name": name})["value"]
            if name == "set_state" and name in self._methods:
                return self._set_state
            if name in self._methods:
                return lambda: self._ask({"do": "get", "name": name})["value"]
        raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")

    def __getstate__(self) -> Any:
        """A session cannot be copied."""
        raise TypeError("A RemoteEnv cannot be copied or pickled: make another, and see get_state() and set_state().")

    def _set_state(self, state: dict[str, Any]) -> None:
        self._ask({"do": "set_state", "state": state})
        self._playing = True

    def _ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """What the environment returns; raises what it raises."""
        if self._closed:
            raise ClosedEnvironmentError(f"The environment at {self._url} was closed here; make another.")
        try:
            answer = self._answer(asked)
        except SessionLostError as error:
            self._lost = str(error)
            raise
        if answer.get("final"):
            self._lost = f"{unpack_error(answer['error'])} The episode is lost: call reset() to begin another."
        elif self._journal is not None:
            self._journal.note(asked, answer)
        if "error" in answer:
            raise_error(answer["error"], self._url)
        return answer["result"]

    def _answer(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        if self._lost:
            if asked["do"] != "reset":
                raise SessionLostError(self._lost)
            self._reopen(anew=True)
        needs_episode = self._playing and not self._lost and (asked["do"] != "reset" or asked["seed"] is None)
        self._lost = ""
        recovering = False
        for _ in range(_TRIES):
            try:
                if recovering:
                    self._reopen(anew=not needs_episode)
                return self._session.ask(asked)
            except ReplayError:
                raise
            except SessionLostError as error:
                if needs_episode and self._journal is None:
                    raise SessionLostError(f"{error} {_REMEDY}") from None
                recovering = True
        raise RemoteError(f"The session at {self._url} was lost {_TRIES} times over one call.")

    def _open(self, *, wait: bool) -> "RemoteSession":
        from agentr1_envs.remote.session import RemoteSession

        session = RemoteSession(
            self._url,
            self._token,
            self._env_id,
            self.render_mode,
            reconnect_seconds=self._reconnect_seconds,
            wait=wait,
        )
        self._finalizer = weakref.finalize(self, session.abandon, "its environment is no longer used")
        return session

    def _reopen(self, *, anew: bool) -> None:
        """A new session in place of one that is gone; unless it begins `anew`, the episode is played in it again.

        Raises:
            RemoteError: the server cannot be reached, or serves something else now. ReplayError: of the journal.
        """
        self._finalizer()
        session = self._open(wait=True)
        if _fixed(session) != self._fixed:
            self._finalizer()
            raise RemoteError(f"The server at {self._url} came back with other settings, or another version of them.")
        self._session = session
        if self._journal is not None:
            self._journal.clear() if anew else self._journal.replay(session)


def _fixed(session: "RemoteSession") -> dict[str, Any]:
    return {name: session.description.get(name) for name in _FIXED}
