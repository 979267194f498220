import copy
import itertools
import os
import pickle
import threading
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import gymnasium
import pytest
import served_toys
from agentr1_envs.errors import EnvTimeoutError, RemoteError, ReplayError, SessionLostError, SettingError
from agentr1_envs.wire import dumps
from gymnasium.error import ClosedEnvironmentError, InvalidAction, ResetNeeded
from gymnasium.utils.env_checker import check_env

pytestmark = pytest.mark.once

pytest.importorskip("websockets", reason="the extra remote is not installed")

SERVED = [
    ("agentr1/GSM8K-v0", {}),
    ("agentr1/HotpotQA-v0", {}),
    ("agentr1/ALFWorld-v0", {"observation": "messages"}),
    ("agentr1/WebShop-v0", {}),
    ("agentr1/PaperSearch-v0", {}),
]
TOY = "served_toys:toys/Stranger-v0"


@pytest.fixture
def remote() -> Iterator[Callable[..., Any]]:
    """Makes remote environments, and closes them after the test."""
    made: list[Any] = []

    def _remote(url: str, env_id: str = TOY, **kwargs: Any) -> Any:
        made.append(gymnasium.make("agentr1/Remote-v0", url=url, env_id=env_id, **kwargs).unwrapped)
        return made[-1]

    yield _remote
    for env in made:
        env.close()


def stranger(mode: str | None) -> served_toys.Stranger:
    return served_toys.Stranger(render_mode=mode)


def same(first: Any, second: Any) -> bool:
    """The same to the bit, types and order included."""
    return dumps(first) == dumps(second)


@pytest.mark.parametrize(("env_id", "kwargs"), SERVED, ids=[env_id for env_id, _ in SERVED])
def test_an_episode_is_the_local_one_to_the_byte(
    start_server: Any, remote: Any, make: Any, env_id: str, kwargs: dict[str, Any]
) -> None:
    server = start_server(env_id, "--env-kwargs", dumps(kwargs))
    env, local = remote(server.url, env_id), make(env_id, **kwargs)
    assert (env.observation_space, env.action_space) == (local.observation_space, local.action_space)
    for seed in (0, 7, None):
        assert same(env.reset(seed=seed), local.reset(seed=seed))
        script = local.demonstration()
        assert env.demonstration() == script
        for action in ["nonsense <tool_call>{", *script]:
            here, there = local.step(action), env.step(action)
            assert same(there, here)
            if here[2] or here[3]:
                break
        with pytest.raises(ResetNeeded):
            env.step("more")
    task_id = local.task_ids[3]
    assert same(env.reset(options={"task_id": task_id}), local.reset(options={"task_id": task_id}))
    for name in ("system_prompt", "tool_schemas", "tools_in_template", "stop", "training_only", "task_ids"):
        assert same(env.get_wrapper_attr(name), getattr(local, name))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(env)


def test_a_strangers_environment_is_as_it_is_here(serve_here: Any, remote: Any) -> None:
    env, local = remote(serve_here(stranger), render_mode="ansi"), stranger("ansi")
    assert same(env.reset(seed=1, options={"a": (1, None)}), local.reset(seed=1, options={"a": (1, None)}))
    assert same(env.step("go"), local.step("go"))
    assert env.render() == "rendered 1"
    assert env.metadata == {"render_modes": ["ansi"]}
    assert (env.stop, env.system_prompt) == (("STOP",), "count 1")
    assert env.has_wrapper_attr("get_state")
    for absent in ("tool_schemas", "task_ids", "_log", "nosuch"):
        assert not env.has_wrapper_attr(absent)
    env.set_state({"count": 9})
    assert env.get_state() == {"count": 9}
    assert env.step("go")[-1]["count"] == 10


def test_errors_come_back_and_the_session_goes_on(serve_here: Any, remote: Any) -> None:
    url = serve_here(stranger)
    env = remote(url)
    env.reset(seed=0)
    with pytest.raises(KeyError, match="name") as caught:
        env.step("key name")
    assert caught.value.__notes__ == [f"raised by the environment at {url}"]
    with pytest.raises(LookupError, match="OddError: one"):
        env.step("odd one")
    with pytest.raises(RuntimeError, match="SystemExit: 3"):
        env.step("exit")
    with pytest.raises(TypeError, match="holds object"):
        env.step("object")
    assert env.step("go")[-1]["count"] == 1
    with pytest.raises(gymnasium.error.Error, match="greater or equal to zero"):
        env.reset(seed=-1)


def test_a_slow_call_ends_the_session_and_a_reset_begins_another(serve_here: Any, remote: Any) -> None:
    env = remote(serve_here(stranger, step_seconds=1), on_disconnect="replay")
    env.reset(seed=0)
    with pytest.raises(EnvTimeoutError):
        env.step("sleep 3")
    for _ in range(2):
        with pytest.raises(SessionLostError, match=r"no answer within 1 s.*call reset\(\)"):
            env.step("go")
    env.reset()
    assert env.step("go")[-1]["count"] == 1


def test_use_after_the_end(serve_here: Any, remote: Any) -> None:
    env = remote(serve_here(lambda mode: gymnasium.make("agentr1/GSM8K-v0"), "agentr1/GSM8K-v0"), "agentr1/GSM8K-v0")
    with pytest.raises(ResetNeeded):
        env.step("x")
    env.reset(seed=0)
    with pytest.raises(InvalidAction, match="got int"):
        env.step(3)
    env.close()
    env.close()
    for use in (lambda: env.step("x"), env.reset, lambda: env.system_prompt):
        with pytest.raises(ClosedEnvironmentError):
            use()


@pytest.mark.parametrize("spread", [copy.deepcopy, pickle.dumps])
def test_a_session_is_not_copied(serve_here: Any, remote: Any, spread: Any) -> None:
    env = remote(serve_here(stranger))
    with pytest.raises(TypeError, match="cannot be copied or pickled: make another"):
        spread(env)


def test_an_environment_nobody_holds_ends_its_session(serve_here: Any, remote: Any, until: Any) -> None:
    url = serve_here(stranger, max_sessions=1)
    env = gymnasium.make("agentr1/Remote-v0", url=url, env_id=TOY)
    env.reset(seed=0)
    del env

    def there_is_room() -> bool:
        try:
            remote(url)
        except RemoteError:
            return False
        return True

    until(there_is_room)


@pytest.mark.parametrize(
    ("kwargs", "problem"),
    [({"on_disconnect": "reply"}, "Did you mean 'replay'"), ({"reconnect_seconds": -1}, "at least 0")],
)
def test_settings_are_checked(kwargs: dict[str, Any], problem: str) -> None:
    with pytest.raises(SettingError, match=problem):
        gymnasium.make("agentr1/Remote-v0", url="ws://127.0.0.1:1", env_id="x", **kwargs)


def test_a_forked_process_leaves_its_parents_session_alone(serve_here: Any, remote: Any) -> None:
    url = serve_here(stranger)
    env = remote(url)
    env.reset(seed=0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of forking where threads run: that is the point
        child = os.fork()
    if child == 0:
        try:
            env.step("go")
        except SessionLostError as error:
            env.close()
            os._exit(0 if "forked" in str(error) else 1)
        os._exit(2)
    assert os.waitpid(child, 0)[1] == 0
    assert env.step("go")[-1]["count"] == 1


@pytest.mark.parametrize("mode", ["sync", "async", "vector_entry_point"])
def test_in_a_vector(serve_here: Any, make: Any, mode: Any) -> None:
    url = serve_here(lambda mode: gymnasium.make("agentr1/GSM8K-v0"), "agentr1/GSM8K-v0", max_sessions=4)
    kwargs = {"vector_kwargs": {"shared_memory": False}} if mode == "async" else {}
    envs = gymnasium.make_vec(
        "agentr1_envs:agentr1/Remote-v0",
        num_envs=3,
        vectorization_mode=mode,
        url=url,
        env_id="agentr1/GSM8K-v0",
        **kwargs,
    )
    locals_ = [make("agentr1/GSM8K-v0") for _ in range(3)]
    observations, infos = envs.reset(seed=5)
    assert list(observations) == [env.reset(seed=5 + place)[0] for place, env in enumerate(locals_)]
    answers = [env.demonstration()[-1] for env in locals_]
    _, rewards, terminated, _, infos = envs.step(tuple(answers))
    assert (list(rewards), list(terminated), list(infos["success"])) == ([1.0] * 3, [True] * 3, [True] * 3)
    envs.close()


def test_many_at_once_are_independent(serve_here: Any) -> None:
    """64 sessions play at once, beside one that hangs, and each is what it is alone."""
    free = threading.Event()

    class Hanging(served_toys.Stranger):
        def step(self, action: str) -> Any:
            return free.wait(60) and super().step(action)

    made = iter([Hanging()])
    url = serve_here(lambda mode: next(made, None) or stranger(mode), max_sessions=65)
    hung = gymnasium.make("agentr1/Remote-v0", url=url, env_id=TOY)
    hung.reset(seed=0)
    waiting = threading.Thread(target=hung.step, args=("go",))
    waiting.start()
    meet, problems = threading.Barrier(64), []

    def play(seed: int) -> None:
        try:
            env = gymnasium.make("agentr1/Remote-v0", url=url, env_id=TOY)
            meet.wait(60)  # all are open at this moment
            local = stranger(None)
            assert same(env.reset(seed=seed), local.reset(seed=seed))
            for step in range(5):
                assert same(env.step(f"go {step}"), local.step(f"go {step}"))
            meet.wait(60)
            env.close()
        except BaseException as error:
            problems.append(error)

    players = [threading.Thread(target=play, args=(seed,)) for seed in range(64)]
    for player in players:
        player.start()
    for player in players:
        player.join()
    assert problems == []
    assert waiting.is_alive()
    free.set()
    waiting.join()
    hung.close()


@pytest.mark.parametrize("on_disconnect", ["error", "replay"])
def test_a_server_killed_and_started_anew(start_server: Any, remote: Any, on_disconnect: str) -> None:
    """In the middle of an episode that no seed names by itself."""
    server = start_server(TOY)
    env, local = remote(server.url, on_disconnect=on_disconnect, reconnect_seconds=60), stranger(None)
    assert same(env.reset(seed=8), local.reset(seed=8))
    assert same(env.reset(), local.reset())
    for action in ("go", "on"):
        assert same(env.step(action), local.step(action))
    server.kill()
    starter = threading.Timer(0.2, start_server, [TOY, "--port", server.port])
    starter.start()  # the client is trying by then
    if on_disconnect == "replay":
        assert same(env.step("go"), local.step("go"))
        assert same(env.reset(), local.reset())  # the generator goes on where it was, too
    else:
        with pytest.raises(SessionLostError, match=r"started anew.*on_disconnect='replay'"):
            env.step("go")
        for use in (lambda: env.step("go"), lambda: env.system_prompt, env.render):
            with pytest.raises(SessionLostError, match=r"call reset\(\)"):
                use()
        assert same(env.reset(seed=3), local.reset(seed=3))
    assert same(env.step("go"), local.step("go"))
    starter.join()


IDLE = 1.0
"""Seconds after which a session ends, and more than what comes between two calls on a busy machine."""


@pytest.fixture
def expire(until: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Waits until a session has ended: the first time until the first has, and so on."""
    closed: list[served_toys.Stranger] = []
    monkeypatch.setattr(served_toys.Stranger, "close", lambda env: closed.append(env))
    awaited = itertools.count(1)

    def _expire() -> None:
        count = next(awaited)
        until(lambda: len(closed) >= count)

    return _expire


def test_an_expired_session_is_replayed(serve_here: Any, remote: Any, expire: Any) -> None:
    env, local = remote(serve_here(stranger, idle_seconds=IDLE), on_disconnect="replay"), stranger(None)
    assert same(env.reset(seed=1), local.reset(seed=1))
    assert same(env.step("go"), local.step("go"))
    expire()
    assert same(env.step("go"), local.step("go"))


def test_where_no_episode_is_lost_none_is_missed(serve_here: Any, remote: Any, expire: Any) -> None:
    env, local = remote(serve_here(stranger, idle_seconds=IDLE)), stranger(None)
    expire()
    assert env.stop == ("STOP",)  # nothing had begun
    env.reset(seed=8)
    expire()
    assert same(env.reset(seed=1), local.reset(seed=1))  # a seed needs no past
    assert same(env.step("go"), local.step("go"))
    expire()
    with pytest.raises(SessionLostError, match=r"nobody asked anything for 1 s"):
        env.reset()  # the generator is lost, and with it what would have come next
    env.reset()


def test_a_replay_that_differs_is_an_error_until_reset(serve_here: Any, remote: Any, expire: Any) -> None:
    greetings = iter(("hello", "goodbye", "hello again"))
    url = serve_here(lambda mode: served_toys.Stranger(greeting=next(greetings)), idle_seconds=IDLE)
    env = remote(url, on_disconnect="replay")
    env.reset(seed=1)
    env.step("go")
    expire()
    with pytest.raises(ReplayError, match=r'"hello .*"goodbye'):
        env.step("go")
    with pytest.raises(SessionLostError, match=r"call reset\(\)"):
        env.step("go")
    assert env.reset(seed=1)[0].startswith("hello again ")


def test_a_server_that_came_back_as_another_is_refused(serve_here: Any, remote: Any, expire: Any) -> None:
    made = iter((stranger(None), gymnasium.make("agentr1/GSM8K-v0")))
    env = remote(serve_here(lambda mode: next(made), idle_seconds=IDLE), on_disconnect="replay")
    env.reset(seed=1)
    expire()
    with pytest.raises(RemoteError, match="came back with other settings"):
        env.reset(seed=1)
