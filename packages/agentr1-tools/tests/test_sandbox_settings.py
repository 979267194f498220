import pytest
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.sandbox.settings import SandboxSettings


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sandbox": "dokcer"}, "'dokcer'; did you mean 'docker'.*bubblewrap, docker, podman"),
        ({"image": "python:3.12"}, "image= is for"),
        ({"sandbox": "podman", "interpreter": "/usr/bin/python3"}, "interpreter= is for"),
        ({"sandbox": "bubblewrap", "allow_unsafe_subprocess": True}, "not both"),
    ],
)
def test_a_setting_without_effect_or_sense_is_refused(settings, message):
    with pytest.raises(ToolConfigError, match=message):
        SandboxSettings(**settings)
