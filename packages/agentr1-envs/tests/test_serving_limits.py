import math

import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.serving.limits import ServingLimits


@pytest.mark.parametrize("name", ["max_sessions", "max_message_bytes", "idle_seconds", "step_seconds"])
@pytest.mark.parametrize("value", [0, -1, math.nan])
def test_a_limit_that_lets_nothing_through_is_refused(name: str, value: float) -> None:
    with pytest.raises(SettingError, match=f"{name}={value} must be above 0"):
        ServingLimits(**{name: value})
