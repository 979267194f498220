"""The original engine, and both engines side by side on real games drawn anew each run.

The original's packages are compiled by `make setup-alfworld`; without them these tests are skipped, and fail in CI.
"""

import copy
import importlib.util
import multiprocessing
import os
import random
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.alfworld.engines import NativeEngine, make_engine
from agentr1_envs.alfworld.game import GameFile
from agentr1_envs.alfworld.games import GameTask, load_games
from agentr1_envs.errors import DependencyMissingError, GameFileError, SettingError

ID = "agentr1/ALFWorld-v0"
SPLITS = ("train", "valid_seen", "valid_train")
GAMES, STEPS = 100, 8


@pytest.fixture
def original() -> Iterator[Any]:
    if missing := [name for name in ("alfworld", "textworld", "fast_downward") if not importlib.util.find_spec(name)]:
        reason = f"engine='textworld' lacks {', '.join(missing)}; make setup-alfworld"
        pytest.fail(reason) if os.environ.get("CI") == "true" else pytest.skip(reason)
    engine = make_engine("textworld")
    yield engine
    engine.close()


def bundled(number: int) -> GameTask:
    task = load_games("train", "bundled")[number]
    assert isinstance(task, GameTask)
    return task


def seen(engine: Any) -> tuple[tuple[str, ...], bool]:
    return tuple(engine.admissible), engine.won


@dataclass(frozen=True)
class Walk:
    """A game to be played in both engines."""

    file: GameFile
    script: tuple[str, ...]
    """The commands; none for commands drawn at random."""
    seed: int


def compare(walk: Walk) -> tuple[int, int, float, float]:
    """Play a walk in both engines; steps, wins, and the CPU seconds of the steps in each.

    Raises:
        AssertionError: they differ.
    """
    original, native, draw = make_engine("textworld"), NativeEngine(), random.Random(walk.seed)
    spent = [0.0, 0.0]
    steps, where = len(walk.script) or STEPS, (walk.seed, walk.file.name)
    assert original.start(walk.file) == native.start(walk.file), where
    assert seen(original) == seen(native), where
    for step in range(steps):
        command = walk.script[step] if walk.script else drawn(draw, native.admissible)
        said: list[str] = []
        for number, engine in enumerate((original, native)):
            started = time.process_time()
            said.append(engine.step(command))
            spent[number] += time.process_time() - started
        assert said[0] == said[1], (*where, step, command)
        assert seen(original) == seen(native), (*where, step, command)
        assert original._state["score"] == float(native.won), (*where, step, command)
    original.close()
    return steps, int(native.won), spent[0], spent[1]


def drawn(draw: random.Random, admissible: tuple[str, ...]) -> str:
    """A command: more often one that changes something, now and then one that is not admissible."""
    if draw.random() < 0.05:
        return draw.choice(("", "Look", "dance", "take nothing 1 from nowhere 1"))
    helpful = [c for c in admissible if not c.startswith(("go to", "help", "look", "inventory", "examine"))]
    return draw.choice(helpful if helpful and draw.random() < 0.6 else admissible)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.usefixtures("original")
def test_both_engines_say_the_same_on_games_drawn_afresh(shared_data: Path) -> None:
    seed = time.time_ns() % 10**9
    print(f"seed {seed}")
    tasks = [task for split in SPLITS for task in load_games(split, shared_data / "alfworld")]
    walks: list[Walk] = []
    for number, task in enumerate(random.Random(seed).sample(tasks, GAMES)):
        assert isinstance(task, GameTask)
        script = task.plan if number % 5 == 0 else ()  # random walks do not win
        walks.append(Walk(task.file(task.question), script, seed + number))
    with ProcessPoolExecutor(os.cpu_count(), mp_context=multiprocessing.get_context("spawn")) as pool:
        steps, wins, slow, fast = map(sum, zip(*pool.map(compare, walks), strict=True))
    print(f"{GAMES} games, {steps} steps, {wins} won; CPU seconds of the steps: {slow:.2f}, native {fast:.2f}")
    assert wins >= GAMES // 5
    assert slow > 20 * fast, "a step is many times faster"


@pytest.mark.slow
@pytest.mark.usefixtures("original")
def test_an_episode_is_the_same_in_both_engines(make: Any) -> None:
    task, played = bundled(1), []
    for engine in ("native", "textworld"):
        env = make(ID, engine=engine, max_steps=len(task.plan) + 1)
        episode = [env.reset(options={"task_id": task.task_id})]
        episode += [env.step(command) for command in ("dance", *task.plan)]
        played.append(episode)
    assert played[0] == played[1]
    assert played[0][-1][1] == 1.0


@pytest.mark.slow
def test_a_state_of_the_original_is_its_commands(original: Any) -> None:
    task = bundled(0)
    original.start(task.file(task.question))
    for command in task.plan[:2]:
        original.step(command)
    state, twin = original.get_state(), copy.deepcopy(original)
    after = (seen(original), original.step(task.plan[2]))
    assert (seen(twin), twin.step(task.plan[2])) == after
    twin.close()
    original.set_state(state)
    assert (seen(original), original.step(task.plan[2])) == after
    with pytest.raises(SettingError, match="played"):
        original.set_state({"facts": []})


@pytest.mark.slow
def test_the_original_leaves_the_process_as_it_was(original: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It sets a variable when imported, its translator swaps standard output and arguments, a cache of it grows."""
    monkeypatch.delenv("ALFWORLD_DATA", raising=False)
    before = (list(sys.argv), sys.stdout)
    cache = import_module("mementos.core")._memento_cache
    sizes: list[int] = []
    for number in range(3):
        original.start(bundled(number).file("win"))
        sizes.append(len(cache))
    assert max(sizes) <= 2 * sizes[0]
    broken = replace(bundled(0).file("win"), name="the broken one", problem="(define (problem p)")
    with pytest.raises(GameFileError, match="game the broken one"):
        original.start(broken)
    assert (sys.argv, sys.stdout) == before
    assert "ALFWORLD_DATA" not in os.environ
    assert "look" in (original.start(bundled(0).file("win")) and original.admissible), "it goes on after an error"


@pytest.mark.slow
def test_the_original_serves_threads_one_at_a_time(original: Any) -> None:
    files = [bundled(number).file("win") for number in range(2)]

    def play(engine: Any, file: GameFile) -> list[Any]:
        return [engine.start(file), seen(engine), engine.step("look"), engine.step(engine.admissible[0]), seen(engine)]

    alone = [play(original, file) for file in files]
    found: dict[int, Any] = {}
    engines = [make_engine("textworld") for _ in files]
    pairs = list(zip(engines, files, strict=True))
    threads = [threading.Thread(target=lambda n=n: found.update({n: play(*pairs[n])})) for n in range(len(pairs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for engine in engines:
        engine.close()
    assert [found.get(number) for number in range(len(files))] == alone


def test_without_its_packages_the_engine_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(DependencyMissingError, match=r"agentr1-envs\[alfworld\].*engine='native'"):
        make_engine("textworld")
