"""Ctrl-C while a catalogue is written: one line, nothing half made, and the old catalogue as it was."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path


def test_ctrl_c_leaves_nothing_half_made(tmp_path: Path) -> None:
    source, out = tmp_path / "mine.jsonl", tmp_path / "out"
    row = {"name": "Tea", "description": "Fresh. " * 50, "title_nouns": ["tea"]}
    source.write_text("\n".join(json.dumps({"asin": f"B{number}", **row}) for number in range(100_000)))
    out.mkdir()
    (out / "catalogue.jsonl.gz").write_text("old")
    command = [sys.executable, "-c", "from agentr1_envs.cli import main; main()", "prepare", "webshop"]
    process = subprocess.Popen(
        [*command, "--source", str(source), "--out", str(out)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    deadline = time.monotonic() + 120
    while not (out / "catalogue.jsonl.gz.unfinished").exists() and time.monotonic() < deadline:
        time.sleep(0.01)
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert (process.returncode, said.startswith("interrupted;"), "Traceback" in said) == (130, True, False)
    assert [path.name for path in out.iterdir()] == ["catalogue.jsonl.gz"]
    assert (out / "catalogue.jsonl.gz").read_text() == "old"
