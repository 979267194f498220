import random

from agentr1_envs.alfworld.game import GameFile, load_game
from agentr1_envs.alfworld.games import GameTask, load_games
from agentr1_envs.alfworld.planner import find_plan
from agentr1_envs.alfworld.session import Session


def test_a_plan_wins_from_the_start_and_from_anywhere() -> None:
    for number, task in enumerate(load_games("valid_seen", "bundled")):
        assert isinstance(task, GameTask)
        session = Session(load_game(task.file(task.question)))
        draw = random.Random(number)
        for wander in (0, 15):
            for _ in range(wander):
                session.step(draw.choice(session.admissible))
            before = session.get_state()
            plan = find_plan(session, 60.0)
            assert session.get_state() == before
            assert plan is not None, task.task_id
            for command in plan:
                assert command in session.admissible
                session.step(command)
            assert session.won
            session.reset()


def test_no_plan_is_none_and_a_goal_that_holds_needs_no_command() -> None:
    task = load_games("train", "bundled")[0]
    assert isinstance(task, GameTask)
    file = task.file("")
    start, _, _ = file.problem.partition("(:goal")
    hopeless = GameFile("x", file.domain, file.grammar, f"{start}(:goal (at middle middle)))", "")
    assert find_plan(Session(load_game(hopeless)), 1.0) is None
    done = GameFile("x", file.domain, file.grammar, f"{start}(:goal (at you middle)))", "")
    assert find_plan(Session(load_game(done)), 1.0) == []
    assert find_plan(Session(load_game(file)), 0.0) is None
