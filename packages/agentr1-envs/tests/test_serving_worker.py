import asyncio
import threading

import pytest
from agentr1_envs.serving.worker import Worker


async def test_calls_run_in_order_in_one_thread() -> None:
    worker, seen = Worker("probe"), []

    def work(number: int) -> str:
        seen.append((number, threading.current_thread().name))
        return str(number)

    answers = await asyncio.gather(*(worker.call(lambda number=number: work(number), 30) for number in range(5)))
    assert answers == ["0", "1", "2", "3", "4"]
    assert seen == [(number, "probe") for number in range(5)]
    worker.finish(lambda: seen.append("last"))
    assert worker.join(30)
    assert seen[-1] == "last"


async def test_a_call_that_hangs_is_given_up_and_holds_up_nobody_else() -> None:
    hanging, other, free = Worker("hanging"), Worker("other"), threading.Event()

    def hang() -> str:
        free.wait(60)
        return "late"

    with pytest.raises(TimeoutError):
        await hanging.call(hang, 0.01)
    assert await other.call(lambda: "here", 30) == "here"
    hanging.finish(lambda: 1 / 0)  # what goes wrong at the end is nobody's business
    assert not hanging.join(0.01)
    free.set()
    assert hanging.join(30)
    other.finish(lambda: None)


def test_an_answer_after_the_end_of_the_loop_is_dropped() -> None:
    worker, free = Worker("late"), threading.Event()

    async def give_up() -> None:
        with pytest.raises(TimeoutError):
            await worker.call(lambda: str(free.wait(60)), 0.01)

    asyncio.run(give_up())
    free.set()
    worker.finish(lambda: None)
    assert worker.join(30)
