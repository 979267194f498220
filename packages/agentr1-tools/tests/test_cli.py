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
    config = json.dumps({"corpus": str(corpus), "timeout": 10})
    assert main(["call", "wiki_search", '{"query": "oslo"}', "--config", config]) == 0
    assert capsys.readouterr().out == "[1] Oslo\nOslo is a city.\n"


def test_a_call_that_fails_is_exit_code_1(capsys):
    assert main(["call", "calculator", '{"expression": "1 / 0"}']) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err == "Error [EXECUTION_ERROR]: division by zero\n"
    assert main(["call", "calculator"]) == 1
    assert "'expression' is a required property" in capsys.readouterr().err


def test_check_tries_a_tool(capsys, tmp_path):
    assert main(["check", "calculator"]) == 0
    assert capsys.readouterr().out == "calculator keeps the contract\n"
    assert main(["check", "calculator", "--example", '{"expression": "1/"}']) == 1
    assert "none of 1 calls succeeded" in capsys.readouterr().err
    assert main(["check", "wiki_search"]) == 1
    assert "nothing to search" in capsys.readouterr().err
    corpus = tmp_path / "corpus.jsonl"
    corpus.write_text('{"title": "Oslo", "text": "Oslo is a city."}\n', encoding="utf-8")
    config = json.dumps({"corpus": str(corpus), "timeout": 10})
    assert main(["check", "wiki_search", "--config", config, "--example", '{"query": "oslo"}']) == 0


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["call", "calculater", "{}"], "did you mean 'calculator'"),
        (["describe", "calculater"], "did you mean 'calculator'"),
        (["check", "calculater"], "did you mean 'calculator'"),
        (["check", "calculator", "--example", "1 + 1"], "--example must be a JSON object"),
        (["call", "calculator", "{"], "the arguments must be a JSON object"),
        (["call", "calculator", "[1]"], "the arguments must be a JSON object"),
        (["call", "calculator", "{}", "--config", "5"], "--config must be a JSON object"),
        (["call", "calculator", "{}", "--config", '{"precision": 5}'], "calculator cannot be made"),
        (["serve", "--tools"], "--tools names none; installed are calculator"),
        (["serve", "--tools", "calculater"], "did you mean 'calculator'"),
        (["serve", "--tools", "calculator", "--config", '{"wiki_search": {}}'], "--config names wiki_search, but"),
        (["serve", "--tools", "calculator", "--config", '{"calculator": 5}'], "--config of calculator must be a JSON"),
        (["serve", "--tools", "calculator", "--max-requests", "0"], "max_requests is 0; it must be above 0"),
        (["serve-retriever", "--corpus", "nowhere.jsonl"], "no corpus at"),
        (["serve-retriever", "--corpus", "x", "--model", "y"], 'are for retriever="dense"'),
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


@pytest.mark.parametrize("argv", [["serve", "--tools", "calculator"], ["serve-retriever", "--corpus", "x"]])
def test_serving_without_its_extra_is_one_line_with_the_command(capsys, monkeypatch, argv):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    assert main(argv) == 2
    said = capsys.readouterr().err
    assert "needs fastapi; install it with: pip install 'agentr1-tools[serve]'" in said
    assert said.count("\n") == 1


def test_the_console_script_is_installed():
    script = Path(sys.executable).with_name("agentr1-tools")
    listed = subprocess.run([script, "list"], capture_output=True, text=True, timeout=60, check=True)
    assert "calculator" in listed.stdout
    unknown = subprocess.run([script, "frob"], capture_output=True, text=True, timeout=60, check=False)
    assert (unknown.returncode, "frob" in unknown.stderr) == (2, True)
