"""The cursor of `lookup`: one hit after another, anew for another keyword or article."""

import json

from agentr1_envs.article_cursor import ArticleCursor


def test_hits_come_one_at_a_time_and_end() -> None:
    cursor = ArticleCursor()
    assert cursor.look_up("fish") == "No more results."
    cursor.turn_to(["One fish.", " Red. ", "Two Fish."])
    assert [cursor.look_up("fish") for _ in range(3)] == [
        "(Result 1 / 2) One fish.",
        "(Result 2 / 2) Two Fish.",
        "No more results.",
    ]


def test_another_keyword_or_article_begins_anew() -> None:
    cursor = ArticleCursor()
    cursor.turn_to(["One fish.", "Red fish."])
    assert cursor.look_up("fish") == "(Result 1 / 2) One fish."
    assert cursor.look_up("red") == "(Result 1 / 1) Red fish."
    assert cursor.look_up("fish") == "(Result 1 / 2) One fish."
    cursor.turn_to(["No fish here."])
    assert cursor.look_up("fish") == "(Result 1 / 1) No fish here."


def test_a_place_can_be_put_aside_and_taken_up() -> None:
    cursor, other = ArticleCursor(), ArticleCursor()
    cursor.turn_to(["One fish.", "Red.", "Two fish."])
    cursor.look_up("fish")
    other.set_state(json.loads(json.dumps(cursor.get_state())))
    assert [other.look_up("fish"), other.look_up("fish")] == ["(Result 2 / 2) Two fish.", "No more results."]
    assert other.look_up("red") == "(Result 1 / 1) Red."
