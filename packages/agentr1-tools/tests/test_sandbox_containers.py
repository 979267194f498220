import shutil

import pytest
from agentr1_tools.errors import SandboxUnavailableError
from agentr1_tools.sandbox.containers import IMAGE, Container
from agentr1_tools.sandbox.limits import Limits
from agentr1_tools.sandbox.sandbox import find_sandbox
from agentr1_tools.sandbox.settings import SandboxSettings


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_the_whole_command_line(kind):
    limits = Limits(memory_bytes=1000, tmp_bytes=24, processes=8)
    line = " ".join(Container(kind, f"/usr/bin/{kind}", "python:3.12").command(limits, 2.5, "agentr1-x"))
    assert line == (
        f"/usr/bin/{kind} run --rm --interactive --name agentr1-x --pull never --log-driver none "
        "--network none --read-only --cap-drop ALL --security-opt no-new-privileges "
        "--ipc private --shm-size 1m --user 65534:65534 --hostname sandbox "
        "--tmpfs /tmp:rw,nosuid,nodev,mode=1777,size=24 --workdir /tmp "
        "--memory 1024 --memory-swap 1024 --pids-limit 10 "
        "--env HOME=/tmp --entrypoint timeout python:3.12 -s KILL 8"
    )


def test_a_container_is_stopped_by_its_name():
    assert Container("docker", "/usr/bin/docker").stop("agentr1-x") == ["/usr/bin/docker", "rm", "--force", "agentr1-x"]


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_keeps_what_it_promises(kind):
    """Runs where that runtime is there and has the image; elsewhere the command line above is all that is tested."""
    if shutil.which(kind) is None:
        pytest.skip(f"there is no {kind} here")
    try:
        sandbox = find_sandbox(SandboxSettings(sandbox=kind))
    except SandboxUnavailableError as error:
        pytest.skip(f"{kind} with the image {IMAGE} cannot be used here: {error}")
    code = """
import os, socket
print(os.getuid(), sorted(os.environ)[0] != "", os.getcwd())
for attempt in (lambda: open("/new", "w"), lambda: socket.create_connection(("1.1.1.1", 80), 2)):
    try:
        attempt()
    except OSError:
        print("refused")
"""
    assert sandbox.run(code, 60.0).stdout.split() == ["65534", "True", "/tmp", "refused", "refused"]
    assert sandbox.run("import time; time.sleep(600)", 5.0).timed_out
