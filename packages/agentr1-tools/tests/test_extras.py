import re
import sys
from importlib.metadata import requires

import pytest
from agentr1_tools.errors import MissingExtraError, ToolConfigError
from agentr1_tools.extras import EXTRAS, require


def test_a_missing_extra_is_one_line_with_the_command(monkeypatch):
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.setitem(sys.modules, "uvicorn", None)
    with pytest.raises(MissingExtraError) as caught:
        require("serve", "serving tools")
    assert str(caught.value) == (
        "serving tools needs fastapi and uvicorn; install it with: pip install 'agentr1-tools[serve]'"
    )
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, ToolConfigError)


def test_what_is_here_is_not_asked_for(monkeypatch):
    monkeypatch.setitem(EXTRAS, "probe", ("json", "sys"))
    require("probe", "nothing")


@pytest.mark.parametrize("extra", EXTRAS)
def test_the_pyproject_says_the_same(extra):
    declared = {
        re.split(r"[^\w-]", requirement)[0]
        for requirement in requires("agentr1-tools") or []
        if f"extra == '{extra}'" in requirement
    }
    assert declared == set(EXTRAS[extra])
