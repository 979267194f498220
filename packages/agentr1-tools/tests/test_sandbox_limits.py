import pytest
from agentr1_tools.errors import ToolConfigError
from agentr1_tools.sandbox.limits import Limits


def test_the_defaults_are_those_that_are_documented():
    limits = Limits()
    assert limits.output_bytes == 1_000_000
    assert limits.total_bytes == limits.memory_bytes + limits.tmp_bytes
    assert limits.rlimits(5.0) == {
        "AS": 2**30,
        "CORE": 0,
        "CPU": 5,
        "FSIZE": 16 * 2**20,
        "NOFILE": 64,
        "NPROC": 32,
    }


def test_processor_time_follows_the_call_unless_it_is_given():
    assert Limits().cpu_limit(1.2) == 2
    assert Limits(cpu_seconds=7).cpu_limit(1.2) == 7


@pytest.mark.parametrize("wrong", [{"processes": 0}, {"memory_bytes": 1.5}, {"cpu_seconds": -1}, {"tmp_bytes": True}])
def test_a_limit_is_a_whole_number_above_0(wrong):
    with pytest.raises(ToolConfigError, match=next(iter(wrong))):
        Limits(**wrong)


def test_limits_can_come_from_a_file():
    assert Limits.from_mapping({"processes": 4}) == Limits(processes=4)
    with pytest.raises(ToolConfigError, match=r"'proceses'; did you mean 'processes'.*cpu_seconds, memory_bytes"):
        Limits.from_mapping({"proceses": 4})
