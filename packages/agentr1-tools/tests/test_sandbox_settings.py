import pytest
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.sandbox.limits import Limits
from agentr1_tools.sandbox.settings import SandboxSettings


def test_limits_can_come_from_json():
    assert SandboxSettings(limits={"processes": 4}).limits == Limits(processes=4)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"sandbox": "dokcer"}, "'dokcer'; did you mean 'docker'.*bubblewrap, docker, podman"),
        ({"image": "python:3.12"}, "image= is for"),
        ({"sandbox": "podman", "interpreter": "/usr/bin/python3"}, "interpreter= is for"),
        ({"sandbox": "bubblewrap", "allow_unsafe_subprocess": True}, "not both"),
        ({"limits": {"proceses": 4}}, "'proceses'; did you mean 'processes'"),
        ({"limits": {"processes": -4}}, "1 or more"),
    ],
)
def test_a_setting_without_effect_or_sense_is_refused(settings, message):
    with pytest.raises(ToolConfigError, match=message):
        SandboxSettings(**settings)
