import re
from pathlib import Path

import pytest

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")
SNIPPETS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)


@pytest.mark.parametrize("snippet", SNIPPETS, ids=[f"snippet{number}" for number in range(len(SNIPPETS))])
def test_the_snippets_run(snippet: str, capsys: pytest.CaptureFixture[str]) -> None:
    exec(compile(snippet, "README.md", "exec"), {})
    assert re.fullmatch(r"(True 1\.0 \d|0\.\d+ 0\.\d+|0\.0 0\.0)\n", capsys.readouterr().out)


def test_every_id_stands_in_the_table() -> None:
    from agentr1_envs import ENTRY_POINTS

    assert len(SNIPPETS) == 2
    for env_id in ENTRY_POINTS:
        assert f"| `{env_id}` |" in README
