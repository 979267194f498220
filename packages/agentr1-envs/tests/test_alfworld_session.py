import copy
import json
import lzma
import random
import threading
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.alfworld.game import load_game
from agentr1_envs.alfworld.games import GameTask, load_games
from agentr1_envs.alfworld.session import NOTHING, Session
from agentr1_envs.errors import SettingError


def new_session(number: int = 0, split: str = "train", data: Any = "bundled") -> Session:
    task = load_games(split, data)[number]
    assert isinstance(task, GameTask)
    return Session(load_game(task.file(task.question)))


def walk(session: Session, seed: int, steps: int = 40) -> list[tuple[str, str, tuple[str, ...], bool]]:
    """A random walk: what was said and possible at each step."""
    draw, seen = random.Random(seed), []
    for _ in range(steps):
        command = draw.choice(session.admissible)
        seen.append((command, session.step(command), session.admissible, session.won))
    return seen


def replay_golden(shared_data: Path, splits: tuple[str, ...]) -> int:
    """Play the stock engine's traces of these splits; returns how many steps were compared."""
    with lzma.open(shared_data.parent / "golden" / "alfworld_traces.jsonl.xz", "rt") as lines:
        traces = [trace for trace in map(json.loads, lines) if trace["split"] in splits]
    steps = 0
    for trace in traces:
        task = load_games(trace["split"], shared_data / "alfworld").find(trace["id"])
        assert isinstance(task, GameTask)
        session = Session(load_game(task.file(task.question)))
        first = trace["initial"]
        assert [session.intro(), list(session.admissible), session.won] == list(first.values()), trace["id"]
        for number, step in enumerate(trace["steps"]):
            said = session.step(step["action"])
            seen = (said, list(session.admissible), session.won, float(session.won))
            wanted = (step["observation"], step["admissible"], step["won"], step["reward"])
            assert seen == wanted, (trace["id"], number, step["action"])
            steps += 1
    return steps


def test_traces_of_the_stock_engine_on_seen_games_to_the_byte(shared_data: Path) -> None:
    assert replay_golden(shared_data, ("valid_seen",)) > 400


@pytest.mark.slow
def test_all_traces_of_the_stock_engine_to_the_byte(shared_data: Path) -> None:
    assert replay_golden(shared_data, ("valid_seen", "valid_train", "train")) > 1000


def test_a_command_that_is_not_admissible_changes_nothing() -> None:
    session = new_session()
    before = session.get_state()
    for command in ("", "Look", "go to", "look around", "take mug 99 from desk 1"):
        assert session.step(command) == NOTHING
    assert session.get_state() == before
    assert session.step("  look \n").startswith("You are in the middle of a room.")


def test_admissible_actions_kept_up_step_by_step_are_those_found_afresh() -> None:
    session = new_session(3)
    for seed in range(5):
        walk(session, seed, 10)
        afresh = new_session(3)
        afresh.set_state(session.get_state())
        assert (afresh.admissible, afresh.won) == (session.admissible, session.won)


def test_a_state_is_json_and_branches_are_their_own() -> None:
    session = new_session(2)
    walk(session, 0, 12)
    state = json.loads(json.dumps(session.get_state()))
    twin, other = copy.deepcopy(session), new_session(2)
    other.set_state(state)
    assert walk(session, 7) == walk(twin, 7) == walk(other, 7)
    other.set_state(state)
    assert other.get_state() == state != session.get_state()
    with pytest.raises(SettingError, match="predicate"):
        other.set_state({"facts": "none"})


def test_reset_goes_back_to_the_beginning() -> None:
    session = new_session(5)
    opening, start = session.intro(), session.get_state()
    walk(session, 1)
    assert session.reset() == opening
    assert session.get_state() == start


def test_threads_on_one_game_see_what_one_alone_sees() -> None:
    alone = [walk(new_session(1), seed) for seed in range(8)]
    game = new_session(1).game
    found: dict[int, Any] = {}
    threads = [threading.Thread(target=lambda n=n: found.update({n: walk(Session(game), n)})) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [found[seed] for seed in range(8)] == alone
