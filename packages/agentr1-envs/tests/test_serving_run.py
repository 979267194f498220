import signal
import time
from typing import Any

import gymnasium
import pytest

pytest.importorskip("uvicorn", reason="the extra serve is not installed")
from agentr1_envs.errors import RemoteError, SessionLostError, SettingError
from agentr1_envs.serving.run import is_local, run

ID = "served_toys:toys/Stranger-v0"


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_ends_it_and_closes_the_environments(start_server: Any, tmp_path: Any, number: int) -> None:
    log = tmp_path / "log"
    server = start_server(ID, "--env-kwargs", f'{{"log": "{log}"}}')
    tried = log.read_text()  # the one that was made to see whether it can be
    env = gymnasium.make("agentr1/Remote-v0", url=server.url, env_id=ID, reconnect_seconds=0)
    env.reset(seed=0)
    server.process.send_signal(number)
    out, err = server.process.communicate(timeout=60)
    assert out.splitlines() == [
        "agentr1-envs: stopping; environments at work have 5 s (Ctrl-C again: none)",
        "agentr1-envs: stopped",
    ]
    assert (server.process.returncode, err) == (0, "")
    assert log.read_text() == tried + "closed\n"
    with pytest.raises(RemoteError, match="No environment server answers at"):
        env.step("go")
    with pytest.raises(SessionLostError):
        env.step("go")
    env.close()


def test_an_environment_that_hangs_does_not_keep_the_server(start_server: Any) -> None:
    server = start_server(ID, "--step-seconds", "1")
    env = gymnasium.make("agentr1/Remote-v0", url=server.url, env_id=ID)
    env.reset(seed=0)
    with pytest.raises(TimeoutError):
        env.step("sleep 600")
    started = time.monotonic()
    server.process.send_signal(signal.SIGINT)
    out, err = server.process.communicate(timeout=60)
    assert time.monotonic() - started < 50
    assert (out.splitlines()[-1], err, server.process.returncode) == ("agentr1-envs: stopped", "", 0)
    env.close()


def test_a_port_that_is_none_is_said() -> None:
    with pytest.raises(SettingError, match="port 70000: a port is a number from 0 to 65535; choose"):
        run(object(), "127.0.0.1", 70000, "nothing", 1)  # type: ignore[arg-type]
    with pytest.raises(SettingError, match=r"cannot listen on 203\.0\.113\.1, port 0: .*another --host"):
        run(object(), "203.0.113.1", 0, "nothing", 1)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("host", "local"),
    [("127.0.0.1", True), ("127.9.9.9", True), ("localhost", True), ("::1", True), ("0.0.0.0", False), ("::", False)],
)
def test_what_nobody_else_reaches(host: str, local: bool) -> None:
    assert is_local(host) is local
