"""Runs the tests marked `gpu` where there is a CUDA device; where there is none, says so and passes."""

import subprocess
import sys

import torch

NO_TESTS_COLLECTED = 5  # pytest's exit status


def main() -> int:
    if not torch.cuda.is_available():
        print(f"no CUDA device here (torch {torch.__version__}): the GPU tests were not run")
        return 0
    print(f"{torch.cuda.device_count()} x {torch.cuda.get_device_name()}, torch {torch.__version__}", flush=True)
    status = subprocess.run([sys.executable, "-m", "pytest", "-m", "gpu", *sys.argv[1:]]).returncode
    if status == NO_TESTS_COLLECTED:
        print("no test is marked gpu")
        return 0
    return status


if __name__ == "__main__":
    sys.exit(main())
