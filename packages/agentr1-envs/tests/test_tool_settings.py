import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.tool_settings import ToolSettings, read_settings


def test_settings_lie_over_the_defaults() -> None:
    assert read_settings({}) == ToolSettings()
    assert read_settings({"max_steps": 3}, max_steps=5, per_hop=0.1) == ToolSettings(max_steps=3, per_hop=0.1)
    assert read_settings({"process_reward_range": [0.2, 0.4]}).process_reward_range == (0.2, 0.4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"max_step": 3}, "Did you mean 'max_steps'"),
        ({"max_steps": 0}, "at least 1"),
        ({"max_invalid": 0}, "max_invalid"),
        ({"progressive": "level"}, "Did you mean 'levels'"),
        ({"process_reward_range": (0.3, 0.1)}, "smaller first"),
        ({"process_reward_range": (0.0, 0.1)}, "positive"),
        ({"per_hop": -1.0}, "per_hop"),
        ({"invalid_penalty": float("nan")}, "invalid_penalty"),
        ({"system": "shrt"}, "Did you mean 'short'"),
        ({"tool_seconds_per_episode": 0}, "above 0"),
        ({"tool_timeout": -1.0}, "above 0"),
    ],
)
def test_wrong_settings_are_refused(settings: dict[str, object], message: str) -> None:
    with pytest.raises(SettingError, match=message):
        read_settings(settings)
