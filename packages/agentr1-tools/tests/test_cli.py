import json
import subprocess
import sys
from pathlib import Path

import pytest
from agentr1_tools.cli import main


def test_list_names_every_tool_and_format_and_where_it_comes_from(capsys):
    assert main(["list"]) == 0
    out = capsys.readouterr().out
    assert "calculator" in out
    assert "agentr1_tools.wiki_search:WikiSearch" in out
    assert "agentr1_tools.formats.hermes:HermesFormat" in out


def test_describe_shows_parameters_and_limits(capsys):
    assert main(["describe", "wiki_search"]) == 0
    out = capsys.readouterr().out
    assert "wiki_search (agentr1-tools" in out
    assert "How many passages to return." in out
    assert "timeout 0.3 s" in out


def test_call_prints_what_a_model_reads(capsys):
    assert main(["call", "calculator", '{"expression": "6 * 7"}']) == 0
    assert capsys.readouterr().out == "42\n"


def test_call_takes_a_configuration(capsys, tmp_path):
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"title": "Oslo", "text": "Oslo is a city."}\n', encoding="utf-8")
    config = json.dumps({"corpus": str(corpus)})
    assert main(["call", "wiki_search", '{"query": "oslo"}', "--config", config]) == 0
    assert capsys.readouterr().out == "[1] Oslo\nOslo is a city.\n"


def test_a_call_that_fails_is_exit_code_1(capsys):
    assert main(["call", "calculator", '{"expression": "1 / 0"}']) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "Error [EXECUTION_ERROR]: division by zero\n"
    assert main(["call", "calculator"]) == 1
    assert "'expression' is a required property" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["call", "calculater", "{}"], "did you mean 'calculator'"),
        (["describe", "calculater"], "did you mean 'calculator'"),
        (["call", "calculator", "{"], "the arguments must be a JSON object"),
        (["call", "calculator", "[1]"], "the arguments must be a JSON object"),
        (["call", "calculator", "{}", "--config", "5"], "--config must be a JSON object"),
        (["call", "calculator", "{}", "--config", '{"precision": 5}'], "calculator cannot be made"),
        (["call", "wiki_search", '{"query": "x"}'], "nothing to search"),
        (["call", "wiki_search", '{"query": "x"}', "--config", '{"corpus": "nowhere.jsonl"}'], "no corpus at"),
    ],
)
def test_a_wrong_command_is_exit_code_2_and_one_line(capsys, argv, message):
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("agentr1-tools: ")
    assert captured.err.count("\n") == 1
    assert message in captured.err


def test_the_console_script_is_installed():
    script = Path(sys.executable).with_name("agentr1-tools")
    listed = subprocess.run([script, "list"], capture_output=True, text=True, timeout=60, check=True)
    assert "calculator" in listed.stdout
    unknown = subprocess.run([script, "frob"], capture_output=True, text=True, timeout=60, check=False)
    assert (unknown.returncode, "frob" in unknown.stderr) == (2, True)
