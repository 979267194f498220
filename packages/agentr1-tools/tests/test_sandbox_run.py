"""Running a command: limits of time and output, whatever it does with its pipes. No sandbox here."""

import os
import sys
import time

import pytest
from agentr1_tools.sandbox.guest import READY
from agentr1_tools.sandbox.run import Clipped, Outcome, run

pytestmark = pytest.mark.usefixtures("no_process_left")


def python(code, *, stdin=b"", seconds=30.0, output_bytes=1000):
    return run(
        [sys.executable, "-I", "-c", code], stdin=stdin, seconds=seconds, output_bytes=output_bytes, environment={}
    )


def test_output_and_exit_code():
    outcome = python("import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)")
    assert outcome == Outcome(False, False, 3, "out\n", "err\n")
    assert outcome.signal == 0


def test_what_begins_with_the_mark_has_started():
    outcome = python(f"import os; os.write(1, {READY!r} + b'hello')")
    assert (outcome.started, outcome.stdout) == (True, "hello")


def test_a_long_stdin_is_sent_and_one_that_is_not_read_does_no_harm():
    much = b"x" * 3_000_000
    assert python("import sys; print(len(sys.stdin.read()))", stdin=much).stdout == "3000000\n"
    assert python("print('uninterested')", stdin=much).stdout == "uninterested\n"


def test_the_environment_is_the_one_given(monkeypatch):
    monkeypatch.setenv("AGENTR1_PLANTED", "x")
    assert python("import os; print('AGENTR1_PLANTED' in os.environ)").stdout == "False\n"


def test_the_middle_of_a_long_output_is_cut():
    outcome = python("print('a' * 400_000 + 'b' * 400_000)", output_bytes=1000)
    assert outcome.exit_code == 0
    assert outcome.stdout.startswith("a" * 400)
    assert outcome.stdout.endswith("b" * 400 + "\n")
    assert "bytes cut" in outcome.stdout
    assert len(outcome.stdout) < 1100


@pytest.mark.parametrize(
    "code",
    [
        "while True: pass",
        "import time; time.sleep(600)",
        "import os, time; os.close(1); os.close(2); time.sleep(600)",
        "while True: print('x' * 4096)",
        "import os, time; os.fork(); os.fork(); time.sleep(600)",
        "import os, signal; os.kill(os.getpid(), signal.SIGSTOP)",
    ],
)
def test_the_limit_holds(code):
    started = time.perf_counter()
    outcome = python(code, seconds=0.5)
    assert (outcome.timed_out, outcome.exit_code) == (True, None)
    assert time.perf_counter() - started < 10


def test_a_child_that_holds_the_pipes_is_not_waited_for_and_dies():
    started = time.perf_counter()
    outcome = python("import os, time\nif (pid := os.fork()) == 0: time.sleep(600)\nelse: print(pid)")
    assert outcome.exit_code == 0
    assert time.perf_counter() - started < 20
    deadline = time.monotonic() + 10
    while os.path.exists(f"/proc/{outcome.stdout.strip()}"):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_child_that_goes_on_writing_does_not_hold_up_the_end():
    code = "import os, time\nif os.fork() == 0:\n    while True: print('x' * 4096)\ntime.sleep(0.2)"
    assert python(code).exit_code == 0


def test_a_signal_is_told_from_an_exit_code():
    assert python("import os; os.kill(os.getpid(), 9)").signal == 9
    assert Outcome(True, False, 137, "", "").signal == 9
    assert Outcome(True, False, 1, "", "").signal == 0
    assert Outcome(True, True, None, "", "").signal == 0


def test_a_command_that_does_not_exist_raises():
    with pytest.raises(FileNotFoundError):
        run(["/nowhere/at/all"], stdin=b"", seconds=1, output_bytes=10, environment={})


def test_no_descriptor_is_left():
    before = len(os.listdir("/proc/self/fd"))
    for code in ("print(1)", "import time; time.sleep(600)"):
        python(code, seconds=0.5)
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize("size", [1, 7, 70_000])
def test_clipped_keeps_head_and_tail_however_it_is_fed(size):
    whole = bytes(range(97, 123)) * 10_000
    clipped = Clipped(101)
    for at in range(0, len(whole), size):
        clipped.feed(whole[at : at + size])
    mark = f"\n[... {len(whole) - 101} bytes cut ...]\n"
    assert clipped.text() == whole[:51].decode() + mark + whole[-50:].decode()


def test_clipped_leaves_what_fits_alone():
    clipped = Clipped(10)
    clipped.feed(b"\xffabcdefghi")
    assert clipped.text() == "�abcdefghi"
