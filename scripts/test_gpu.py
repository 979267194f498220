"""Runs the tests marked `gpu` where there is a CUDA device; where there is none, says so, names them and passes."""

import subprocess
import sys

import torch


def main() -> int:
    pytest = [sys.executable, "-m", "pytest", "-m", "gpu"]
    if not torch.cuda.is_available():
        build = "a build for CPUs alone" if torch.version.cuda is None else f"for CUDA {torch.version.cuda}"
        print(f"no CUDA device here (torch {torch.__version__}, {build}): these GPU tests were not run", flush=True)
        return subprocess.run([*pytest, "--collect-only", *sys.argv[1:]]).returncode
    print(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    return subprocess.run([*pytest, *sys.argv[1:]]).returncode


if __name__ == "__main__":
    sys.exit(main())
