import json
import socket
import sys
from typing import Any

import gymnasium
import pytest
from agentr1_envs.cli import main
from agentr1_envs.errors import SettingError
from agentr1_envs.serve_command import serve
from agentr1_envs.wire_protocol import TOKEN_VARIABLE

pytest.importorskip("fastapi", reason="the extra serve is not installed")


@pytest.mark.parametrize(
    ("env_id", "settings", "problem"),
    [
        ("agentr1/GSM9K-v0", {}, "Did you mean 'agentr1/GSM8K-v0'"),
        ("no_such_package:agentr1/GSM8K-v0", {}, "could not be made: ModuleNotFoundError"),
        ("agentr1/GSM8K-v0", {"env_kwargs": "{"}, "is not JSON"),
        ("agentr1/GSM8K-v0", {"env_kwargs": "[]"}, "must be a JSON object"),
        ("agentr1/GSM8K-v0", {"env_kwargs": '{"render_mode": "ansi"}'}, "the client's to choose"),
        ("agentr1/GSM8K-v0", {"env_kwargs": '{"mode": "x"}'}, "'calculator', 'single'"),
        ("agentr1/GSM8K-v0", {"env_kwargs": '{"nosuch": 1}'}, "nosuch"),
        ("agentr1/GSM8K-v0", {"max_sessions": 0}, "max_sessions=0 must be above 0"),
        ("CartPole-v1", {}, "cannot be served"),
    ],
)
def test_what_is_wrong_is_said_before_anybody_connects(env_id: str, settings: dict[str, Any], problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        serve(env_id, port=0, **settings)


def test_a_port_that_is_taken_is_one_line_and_exit_code_2(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = str(other.getsockname()[1])
        monkeypatch.setattr(sys, "argv", ["agentr1-envs", "serve", "agentr1/GSM8K-v0", "--port", port])
        with pytest.raises(SystemExit) as ended:
            main()
    said = capsys.readouterr()
    assert (ended.value.code, said.out) == (2, "")
    assert said.err == (
        f"error: cannot listen on 127.0.0.1, port {port}: Address already in use; choose another --host or "
        "--port (0 takes a free port)\n"
    )


def test_the_settings_are_the_servers(start_server: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    kwargs = {"split": "test", "observation": "messages"}
    monkeypatch.setenv(TOKEN_VARIABLE, "of-the-variable")
    server = start_server("agentr1/GSM8K-v0", "--env-kwargs", json.dumps(kwargs))
    local = gymnasium.make("agentr1/GSM8K-v0", **kwargs)
    env = gymnasium.make("agentr1/Remote-v0", url=server.url, env_id="agentr1_envs:agentr1/GSM8K-v0")
    assert env.observation_space == local.observation_space
    assert env.reset(seed=5) == local.reset(seed=5)
    env.close()
    with pytest.raises(ConnectionError, match="the token is missing, or is not the server's"):
        gymnasium.make("agentr1/Remote-v0", url=server.url, env_id="agentr1/GSM8K-v0", token="wrong")


def test_a_wider_host_without_a_token_is_warned_of(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    monkeypatch.setattr("agentr1_envs.serving.run.run", lambda *_: None)
    serve("agentr1/GSM8K-v0", host="0.0.0.0")
    assert "warning: whoever reaches 0.0.0.0 may play here" in capsys.readouterr().err
    for quiet in ({"host": "0.0.0.0", "token": "x"}, {"host": "127.0.0.1"}):
        serve("agentr1/GSM8K-v0", **quiet)  # type: ignore[arg-type]
    assert capsys.readouterr().err == ""


def test_a_setting_error_is_one_of_this_package() -> None:
    with pytest.raises(SettingError):
        serve("agentr1/GSM8K-v0", env_kwargs="3")
