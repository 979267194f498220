import multiprocessing
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from agentr1_envs.once import ForkSafeLock, OncePerProcess, SharedWhileUsed


class Thing:
    pass


def test_many_threads_open_once() -> None:
    opened: list[int] = []

    def open_it() -> Thing:
        opened.append(1)
        time.sleep(0.05)
        return Thing()

    cache = OncePerProcess[Thing](kept=2)
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: cache.get("k", open_it), range(32)))
    assert len(found) == len(opened) == 1


def test_the_one_used_longest_ago_goes_and_errors_are_not_kept() -> None:
    cache = OncePerProcess[Thing](kept=2)
    a, b = cache.get("a", Thing), cache.get("b", Thing)
    assert cache.get("a", Thing) is a
    cache.get("c", Thing)
    assert cache.get("a", Thing) is a
    assert cache.get("b", Thing) is not b
    with pytest.raises(ZeroDivisionError):
        cache.get("d", lambda: 1 / 0)  # type: ignore[arg-type,return-value]
    assert isinstance(cache.get("d", Thing), Thing)


def test_shared_while_used() -> None:
    shared = SharedWhileUsed[Thing]()
    first = shared.get("k", Thing)
    assert shared.get("k", Thing) is first
    assert shared.get("other", Thing) is not first
    assert len(shared) == 1
    del first
    assert len(shared) == 0


def test_a_lock_held_by_a_thread_is_free_in_a_forked_child() -> None:
    lock, held, release = ForkSafeLock(), threading.Event(), threading.Event()

    def hold() -> None:
        with lock:
            held.set()
            release.wait(120)

    def enter() -> None:
        with lock:
            pass

    holder = threading.Thread(target=hold)
    holder.start()
    assert held.wait(30)
    child = multiprocessing.get_context("fork").Process(target=enter)
    child.start()
    child.join(60)
    release.set()
    holder.join()
    assert child.exitcode == 0
