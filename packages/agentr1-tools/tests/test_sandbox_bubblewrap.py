from agentr1_tools.sandbox.bubblewrap import Bubblewrap
from agentr1_tools.sandbox.interpreter import Interpreter
from agentr1_tools.sandbox.limits import Limits

PYTHON = Interpreter(
    "/opt/py/bin/python3",
    ("/opt/py/bin/python3", "/opt/py/bin/python3.11"),
    "/opt/py/bin/python3.11",
    ("/usr/lib", "/opt/py/lib"),
    (("usr/lib", "/lib"),),
)
LINE = Bubblewrap("/usr/bin/bwrap", PYTHON).command(Limits(tmp_bytes=5_000_000), 5.0, "run")


def pairs(option):
    return [(LINE[at + 1], LINE[at + 2]) for at, word in enumerate(LINE) if word == option]


def test_every_namespace_is_its_own():
    unshared = {"--unshare-user", "--unshare-ipc", "--unshare-pid", "--unshare-net", "--unshare-uts"}
    assert unshared | {"--disable-userns", "--die-with-parent", "--new-session", "--clearenv"} <= set(LINE)
    assert LINE[LINE.index("--cap-drop") + 1] == "ALL"


def test_only_the_interpreter_and_its_libraries_are_bound_and_only_for_reading():
    assert pairs("--ro-bind") == [
        ("/usr/lib", "/usr/lib"),
        ("/opt/py/lib", "/opt/py/lib"),
        ("/opt/py/bin/python3.11", "/opt/py/bin/python3"),
        ("/opt/py/bin/python3.11", "/opt/py/bin/python3.11"),
    ]
    assert pairs("--symlink") == [("usr/lib", "/lib")]
    assert not {"--bind", "--dev-bind", "--share-net", "--overlay"} & set(LINE)


def test_what_can_be_written_is_bounded_and_the_rest_is_closed_last():
    places = [LINE[at + 1] for at, word in enumerate(LINE) if word == "--tmpfs"]
    assert places == ["/dev/shm", "/tmp"]
    for place, size in zip(places, ("1048576", "5000000"), strict=True):
        at = LINE.index(place)
        assert LINE[at - 5 : at - 1] == ["--size", size, "--perms", "1777"]
    mounts = [at for at, word in enumerate(LINE) if word in ("--tmpfs", "--ro-bind", "--proc", "--dev", "--symlink")]
    assert LINE.index("/", max(mounts)) > max(mounts)
    assert LINE[LINE.index("/", max(mounts)) - 1] == "--remount-ro"


def test_root_becomes_nobody_before_bubblewrap_starts():
    line = Bubblewrap("/usr/bin/bwrap", PYTHON, "/usr/bin/setpriv").command(Limits(), 5.0, "run")
    assert line[:4] == ["/usr/bin/setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"]
    assert line[4] == "/usr/bin/bwrap"
    assert LINE[0] == "/usr/bin/bwrap"
    assert LINE[-1] == "--"


def test_nothing_is_left_to_stop():
    assert Bubblewrap("/usr/bin/bwrap", PYTHON).stop("run") == []
