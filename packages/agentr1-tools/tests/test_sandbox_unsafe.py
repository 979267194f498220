from agentr1_tools.sandbox.limits import Limits
from agentr1_tools.sandbox.unsafe import UnsafeSubprocess


def test_it_is_a_plain_interpreter():
    plain = UnsafeSubprocess("/usr/bin/python3")
    assert [*plain.command(Limits(), 5.0, "run"), *plain.python] == ["/usr/bin/python3"]
    assert plain.stop("run") == []


def test_root_becomes_nobody_whose_processes_can_be_counted():
    line = UnsafeSubprocess("/usr/bin/python3", "/usr/bin/setpriv").command(Limits(), 5.0, "run")
    assert line == ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    assert UnsafeSubprocess("/usr/bin/python3", "/usr/bin/setpriv").counts_its_own
    assert not UnsafeSubprocess("/usr/bin/python3").counts_its_own
