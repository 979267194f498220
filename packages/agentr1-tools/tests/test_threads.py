import asyncio
import os
import subprocess
import sys
import threading
import time

import pytest
from agentr1_tools.threads import BackgroundLoop, DaemonPool


def test_jobs_run_at_the_same_time_up_to_the_limit():
    pool, meet = DaemonPool("test", limit=8), threading.Barrier(8)
    jobs = [pool.submit(lambda: meet.wait(60)) for _ in range(8)]
    assert {job.result(60) for job in jobs} == set(range(8))  # one after another, nobody would come


def test_beyond_the_limit_jobs_wait_and_all_are_done():
    pool = DaemonPool("test", limit=2)
    running, most, lock = 0, 0, threading.Lock()

    def job(number):
        nonlocal running, most
        with lock:
            running += 1
            most = max(most, running)
        time.sleep(0.005)
        with lock:
            running -= 1
        return number

    for _ in range(3):  # a backlog must not leave the count of threads wrong
        futures = [pool.submit(lambda number=number: job(number)) for number in range(40)]
        assert [future.result(60) for future in futures] == list(range(40))
    assert most == 2


def test_an_exception_reaches_the_caller():
    def fail():
        raise SystemExit(3)

    with pytest.raises(SystemExit):
        DaemonPool("test", limit=1).submit(fail).result(5)


def test_a_forked_child_starts_anew():
    pool = DaemonPool("test", limit=1)
    assert pool.submit(lambda: 1).result(5) == 1
    pid = os.fork()
    if pid == 0:
        os._exit(pool.submit(lambda: 7).result(5))
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 7


def test_the_background_loop_is_one_loop():
    loop = BackgroundLoop()

    async def where():
        return asyncio.get_running_loop()

    first = asyncio.run_coroutine_threadsafe(where(), loop.get()).result(5)
    second = asyncio.run_coroutine_threadsafe(where(), loop.get()).result(5)
    assert first is second
    loop.stop()


def test_a_hung_job_does_not_keep_the_interpreter():
    program = (
        "import threading\n"
        "from agentr1_tools.threads import background, executors\n"
        "executors.submit(threading.Event().wait)\n"
        "background.get()\n"
    )
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
