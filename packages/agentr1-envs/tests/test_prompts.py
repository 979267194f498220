import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.prompts import answer_system, tool_stops, tool_system
from agentr1_envs.tool_settings import ToolSettings


def system(**settings: object) -> str:
    return tool_system(ToolSettings(**settings), "You play.", ["a", "b"], lambda: "HOW TO CALL")  # type: ignore[arg-type]


def test_the_styles_of_a_task_with_tools() -> None:
    full = system(max_steps=3)
    assert full.startswith("You play.\n\nHOW TO CALL\n\nYou have at most 3 responses.")
    assert "<answer>" in full
    assert "HOW TO CALL" not in system(tools_in_template=True)
    assert system(system="short") == "Call a, b as needed, then write <answer>...</answer>."
    assert system(system="none") == ""
    assert system(system="Be brief.") == "Be brief."


def test_the_styles_of_a_task_without_tools() -> None:
    assert answer_system("full", "You play.").startswith("You play. ")
    assert answer_system("short", "You play.") == "Write <answer>...</answer>."
    assert answer_system("none", "You play.") == ""
    with pytest.raises(SettingError, match="Did you mean 'full'"):
        answer_system("ful", "You play.")


def test_a_call_ends_a_response_only_where_one_call_is_allowed() -> None:
    assert tool_stops(2, "</call>", "<result>") == ["</answer>", "<result>"]
    assert tool_stops(1, "</call>", "<result>") == ["</call>", "</answer>", "<result>"]
    assert tool_stops(1, "", "<result>") == ["</answer>", "<result>"]
