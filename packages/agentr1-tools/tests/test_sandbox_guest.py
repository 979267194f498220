"""The program inside, run as it is run in a sandbox, but by this Python and without a sandbox."""

import subprocess
import sys
from pathlib import Path

import pytest
from agentr1_tools.sandbox import guest

GUEST = Path(guest.__file__).read_text(encoding="utf-8")


def run(code, *limits):
    done = subprocess.run(
        [sys.executable, "-I", "-B", "-X", "utf8", "-c", GUEST, *limits], input=code.encode(), capture_output=True
    )
    ready = done.stdout.startswith(guest.READY)
    return ready, done.returncode, done.stdout.removeprefix(guest.READY).decode(), done.stderr.decode()


@pytest.mark.parametrize(
    ("code", "stdout"),
    [
        ("print('ä 龍')", "ä 龍\n"),
        ("1 + 1", "2\n"),
        ("x = 3\nx", "3\n"),
        ("None", ""),
        ("", ""),
        ("# only a remark", ""),
        ("for n in range(2): n", ""),
        ("print('a'); 'b'", "a\n'b'\n"),
        ("__name__", "'__main__'\n"),
        ("import sys; sys.argv", "['<code>']\n"),
        ("import sys; sys.stdin.read()", "''\n"),
        ("import os; os.read(0, 9)", "b''\n"),
        ("class A: pass\nimport pickle\ntype(pickle.loads(pickle.dumps(A()))) is A", "True\n"),
        ("from dataclasses import dataclass\n@dataclass\nclass P:\n    x: int\nP(1)", "P(x=1)\n"),
        ("def f(n):\n    return n and f(n - 1)\nf(9)", "0\n"),
        ("'annotations' in globals(), sorted(name for name in globals() if name[0] != '_')", "(False, [])\n"),
    ],
)
def test_what_is_printed_and_the_last_value(code, stdout):
    assert run(code) == (True, 0, stdout, "")


def test_a_traceback_shows_the_code_and_nothing_of_this_file():
    ready, status, stdout, stderr = run("print(1)\ndef f(x):\n    return x / 0\nf(3)")
    assert (ready, status, stdout) == (True, 1, "1\n")
    assert stderr.startswith('Traceback (most recent call last):\n  File "<code>", line 4, in <module>\n    f(3)\n')
    assert "return x / 0" in stderr
    assert stderr.endswith("ZeroDivisionError: division by zero\n")
    assert "_run" not in stderr


def test_code_that_cannot_be_read_is_an_error_like_any_other():
    ready, status, _, stderr = run("x = = 1")
    assert (ready, status) == (True, 1)
    assert 'File "<code>", line 1' in stderr
    assert "SyntaxError" in stderr
    assert "_run" not in stderr


@pytest.mark.parametrize(("code", "status"), [("raise SystemExit", 0), ("exit(7)", 7), ("import os; os._exit(3)", 3)])
def test_a_programs_own_exit_code_counts(code, status):
    assert run(code)[:2] == (True, status)


def test_the_limits_hold_before_the_code_runs_and_cannot_be_raised():
    show = "import resource; resource.getrlimit(resource.RLIMIT_NOFILE), resource.getrlimit(resource.RLIMIT_CPU)"
    assert run(show, "NOFILE=20", "CPU=3")[2] == "((20, 20), (3, 4))\n"
    raised = "import resource; resource.setrlimit(resource.RLIMIT_AS, (2**40, 2**40))"
    assert "bytearray" not in run(raised, "AS=900000000")[3]
    assert "MemoryError" in run("bytearray(2**30)", "AS=900000000")[3]


def test_a_limit_that_cannot_be_set_stops_before_the_code():
    ready, status, stdout, stderr = run("print('ran')", "NOSUCH=1")
    assert (ready, status != 0, stdout) == (False, True, "")
    assert "RLIMIT_NOSUCH" in stderr
