import io
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import gymnasium
import pytest
from agentr1_envs import download as download_module
from agentr1_envs.datasets import GSM8K
from agentr1_envs.download import download
from agentr1_envs.errors import DependencyMissingError, DownloadError
from agentr1_envs.play import play
from rich.console import Console


def run(*arguments: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", "from agentr1_envs.cli import main; main()", *arguments]
    return subprocess.run(command, input=stdin, capture_output=True, text=True, check=False)


def test_list_shows_every_id_and_where_data_comes_from() -> None:
    done = run("list")
    assert done.returncode == 0
    for part in ("agentr1/GSM8K-v0", "agentr1/HotpotQA-v0", "agentr1/ToolEnv-v0", "bundled sample"):
        assert part in done.stdout


def test_play_reads_responses_from_standard_input() -> None:
    done = run("play", "agentr1/GSM8K-v0", "--seed", "3", "--set", "operations=2", stdin=":expert\n:expert\n:expert\n")
    assert done.returncode == 0, done.stderr
    assert "success (answer); 3 steps, total reward 1.00" in done.stdout


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("play", "agentr1/GSM9K-v0"), "Did you mean 'agentr1/GSM8K-v0'"),
        (("play", "agentr1/GSM8K-v0", "--set", "mode"), "name=value"),
        (("play", "agentr1/GSM8K-v0", "--set", "mode=x"), "'calculator', 'single'"),
        (("play", "agentr1/GSM8K-v0", "--set", "data=/no/such"), "/no/such does not exist"),
        (("play", "agentr1/GSM8K-v0", "--task-id", "x"), "task_id='x'"),
        (("prepare", "gsm9k", "--source", "x"), "Did you mean 'gsm8k'"),
        (("prepare", "gsm8k", "--source", "/no/such"), "no such file or folder"),
    ],
)
def test_an_error_is_one_line_and_exit_code_2(arguments: tuple[str, ...], message: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert message in done.stderr
    assert done.stderr.startswith("error: ")
    assert done.stderr.count("\n") == 1


def test_prepare_says_what_it_wrote(tmp_path: Path) -> None:
    rows = [{"question": "q", "answer": "#### 1"}, {"question": "r"}]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ("prepare", "gsm8k", "--source", str(tmp_path), "--out", str(tmp_path / "out"))
    refused = run(*arguments)
    assert refused.returncode == 2
    assert "line 2, field 'answer'" in refused.stderr
    done = run(*arguments, "--on-bad-row", "skip")
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path / 'out' / 'train.parquet'}: 1 tasks" in done.stdout
    assert "skipped:" in done.stdout


def played(lines: str, **kwargs: Any) -> tuple[bool, str]:
    env = gymnasium.make("agentr1/GSM8K-v0", **kwargs)
    console = Console(file=io.StringIO(), width=200)
    ended = play(env, io.StringIO(lines), console, seed=1)
    env.close()
    return ended, console.file.getvalue()  # type: ignore[attr-defined]


def test_play_stops_at_quit_and_at_the_end_of_input() -> None:
    for lines in ("", ":quit\n", "<tool_call>{\n:quit\n"):
        ended, shown = played(lines)
        assert not ended
        assert "Stopped before the end" in shown


def test_play_takes_line_breaks_and_shows_markup_as_it_is() -> None:
    ended, shown = played("[bold]first\\nsecond <answer>0</answer>\n", observation="messages")
    assert ended
    assert "[bold]first" in shown
    assert "no success (answer)" in shown


def test_download_without_the_package_names_the_install_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DependencyMissingError, match=r'pip install "agentr1-envs\[download\]"'):
        download(GSM8K, tmp_path / "out")


def test_download_without_a_network_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unreachable(*arguments: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(download_module, "getproxies", dict)
    monkeypatch.setattr(download_module, "getaddrinfo", unreachable)
    with pytest.raises(DownloadError, match=r"openai/gsm8k: Name or service not known\..*agentr1-envs prepare gsm8k"):
        download(GSM8K, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_download_fetches_and_prepares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    import huggingface_hub

    fetched = tmp_path / "main-test.jsonl"
    fetched.write_text(json.dumps({"question": "q", "answer": "#### 1"}))
    asked: list[tuple[str, str]] = []

    def fetch(repository: str, name: str, repo_type: str) -> str:
        asked.append((repository, name))
        return str(fetched)

    names = [
        "README.md",
        "main/test-00000-of-00001.parquet",
        "main/train-00000-of-00001.parquet",
        "socratic/test-0.parquet",
    ]
    monkeypatch.setattr(download_module, "getaddrinfo", lambda *arguments: [])
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda repository, repo_type: names)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    written, _ = download(GSM8K, tmp_path / "out", "test")
    assert asked == [("openai/gsm8k", "main/test-00000-of-00001.parquet")]
    assert [(part.split, part.tasks) for part in written] == [("test", 1)]
    names.clear()
    with pytest.raises(DownloadError, match="layout has changed"):
        download(GSM8K, tmp_path / "other")
