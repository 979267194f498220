import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.once


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


def test_generated_games_can_be_played(tmp_path: Path) -> None:
    done = run("generate", "alfworld", "--seed", "5", "--count", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert f"{tmp_path / 'train.jsonl'}: 2 games" in done.stdout
    done = run("play", "agentr1/ALFWorld-v0", "--set", f"data={tmp_path}", stdin=":expert\n" * 40)
    assert "success (won)" in done.stdout, done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("generate", "alfwrld"), "Did you mean 'alfworld'"),
        (("generate", "alfworld", "--split", "test"), "'valid_seen'"),
        (("play", "agentr1/GSM9K-v0"), "Did you mean 'agentr1/GSM8K-v0'"),
        (("play", "agentr1/GSM8K-v0", "--set", "mode"), "name=value"),
        (("play", "agentr1/GSM8K-v0", "--set", "mode=x"), "'calculator', 'single'"),
        (("play", "agentr1/GSM8K-v0", "--set", "data=/no/such"), "/no/such does not exist"),
        (("play", "agentr1/GSM8K-v0", "--task-id", "x"), "task_id='x'"),
        (("prepare", "gsm9k", "--source", "x"), "Did you mean 'gsm8k'"),
        (("prepare", "gsm8k", "--source", "/no/such"), "no such file or folder"),
        (("prepare", "gsm8k", "--source", "/no/such", "--split", "tset"), "Did you mean 'test'"),
        (("prepare", "gsm8k", "--source", "/no/such", "--tagger", "x"), "--tagger has no effect on gsm8k"),
        (("prepare", "webshop", "--source", "/no/such"), "/no/such does not exist (looked for items_shuffle.json"),
        (("prepare", "webshop", "--source", "/no/such", "--split", "test"), "--split has no effect on webshop"),
        (("download", "webshp"), "Did you mean 'webshop'"),
        (("download", "webshop", "--split", "test"), "--split has no effect on webshop"),
        (("download", "gsm8k", "--size", "full"), "--size has no effect on gsm8k"),
        (("download", "gsm8k", "--split", "dev"), "'train', 'test'"),
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


def test_prepare_webshop_says_what_it_read_and_wrote(tmp_path: Path) -> None:
    rows = [{"asin": "B1", "name": "Tea", "instruction": "Find tea", "title_nouns": ["tea"]}, {"name": "no asin"}]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    arguments = ("prepare", "webshop", "--source", str(tmp_path / "mine.jsonl"), "--out", str(tmp_path / "out"))
    refused = run(*arguments)
    assert (refused.returncode, "line 2, field 'asin'" in refused.stderr) == (2, True)
    done = run(*arguments, "--on-bad-row", "skip")
    assert done.returncode == 0, done.stderr
    assert "mine.jsonl: " in done.stdout
    assert f"{tmp_path / 'out' / 'catalogue.jsonl.gz'}: 1 products" in done.stdout
    assert "skipped:" in done.stdout
    played = run("play", "agentr1/WebShop-v0", "--set", f"data={tmp_path / 'out'}", stdin=":expert\n" * 4)
    assert "success (buy now)" in played.stdout, played.stderr
