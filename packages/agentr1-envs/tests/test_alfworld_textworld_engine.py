"""The original engine, where it is installed, and both engines side by side on real games drawn anew each run."""

import random
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.alfworld.engines import NativeEngine, make_engine
from agentr1_envs.alfworld.games import GameTask, load_games
from agentr1_envs.errors import DependencyMissingError

GAMES, STEPS = 100, 14


@pytest.fixture
def original() -> Any:
    for name in ("alfworld", "textworld", "fast_downward"):
        pytest.importorskip(name, reason="engine='textworld' needs the original packages")
    engine = make_engine("textworld")
    yield engine
    engine.close()


def test_without_its_packages_the_engine_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "textworld", None)
    with pytest.raises(DependencyMissingError, match="engine='native'"):
        make_engine("textworld")


def compare(original: Any, native: NativeEngine, task: GameTask, seed: int) -> tuple[float, float]:
    """One random walk in both engines; returns the seconds of a step in each."""
    draw = random.Random(seed)
    file = task.file(task.question)
    assert original.start(file) == native.start(file), (seed, task.task_id)
    spent = [0.0, 0.0]
    for step in range(STEPS):
        assert (original.admissible, original.won) == (native.admissible, native.won), (seed, task.task_id, step)
        helpful = [c for c in native.admissible if not c.startswith(("go to", "help", "look", "inventory"))]
        command = draw.choice(helpful if helpful and draw.random() < 0.7 else native.admissible)
        command = "nothing of this kind" if draw.random() < 0.05 else command
        said: list[str] = []
        for number, engine in enumerate((original, native)):
            started = time.perf_counter()
            said.append(engine.step(command))
            spent[number] += time.perf_counter() - started
        assert said[0] == said[1], (seed, task.task_id, step, command)
    return spent[0], spent[1]


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_both_engines_say_the_same_on_fresh_random_walks(original: Any, shared_data: Path) -> None:
    seed = time.time_ns() % 10**9
    print(f"seed {seed}")
    tasks = [task for split in ("valid_seen", "valid_train") for task in load_games(split, shared_data / "alfworld")]
    native = NativeEngine()
    spent = [0.0, 0.0]
    for number, task in enumerate(random.Random(seed).sample(tasks, GAMES)):
        assert isinstance(task, GameTask)
        for place, seconds in enumerate(compare(original, native, task, seed + number)):
            spent[place] += seconds
    print(f"seconds of {GAMES * STEPS} steps: original {spent[0]:.2f}, native {spent[1]:.2f}")
    assert spent[0] > 20 * spent[1], "a step is many times faster (over 50 times on an idle machine)"


@pytest.mark.slow
def test_a_state_of_the_original_is_its_commands(original: Any) -> None:
    task = load_games("train", "bundled")[0]
    assert isinstance(task, GameTask)
    original.start(task.file(task.question))
    for command in task.plan[:2]:
        original.step(command)
    state = original.get_state()
    seen = (original.admissible, original.step(task.plan[2]))
    original.set_state(state)
    assert (original.admissible, original.step(task.plan[2])) == seen
