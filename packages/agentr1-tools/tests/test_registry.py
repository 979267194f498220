import subprocess
import sys

import pytest
from agentr1_tools import available, available_formats, get_format, load_tool
from agentr1_tools.errors import (
    DuplicateNameError,
    InvalidToolError,
    ToolConfigError,
    UnknownFormatError,
    UnknownToolError,
)

PLUGIN = """
from agentr1_tools import BaseTool, tool

class Echo(BaseTool):
    name = "echo"
    description = "Say it again."
    def __init__(self, times=1):
        self.times = times
    def execute(self, params):
        return {"status": "success", "data": self.times}

class Misnamed(Echo):
    name = "other"

@tool
def shout(text: str) -> str:
    '''Say it loudly.'''
    return text.upper()

def make_echo(times=2):
    return Echo(times)

def make_nothing():
    return None

number = 5
"""


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Puts a distribution with entry points on the path, as an installer would leave it."""

    def put(distribution, entries, module="echo_plugin", source=PLUGIN, group="agentr1.tools"):
        folder = tmp_path / distribution
        info = folder / f"{distribution.replace('-', '_')}-1.2.dist-info"
        info.mkdir(parents=True)
        (folder / f"{module}.py").write_text(source, encoding="utf-8")
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.2\n", encoding="utf-8")
        lines = [f"[{group}]", *(f"{name} = {value}" for name, value in entries.items())]
        (info / "entry_points.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
        monkeypatch.syspath_prepend(folder)
        monkeypatch.delitem(sys.modules, module, raising=False)
        return folder

    yield put
    for name in [name for name in sys.modules if name.endswith("_plugin")]:
        del sys.modules[name]


def test_the_built_in_tools_enter_by_the_same_door():
    found = available()
    assert {"calculator", "wiki_search"} <= found.keys()
    assert found["calculator"].distribution == "agentr1-tools"
    assert found["calculator"].entry_point == "agentr1_tools.calculator:Calculator"
    assert {"call", "hermes"} <= available_formats().keys()
    assert get_format("hermes").name == "hermes"
    assert load_tool("calculator").name == "calculator"


def test_every_offered_tool_and_format_can_be_loaded():
    elsewhere = {"mcp", "remote"}  # these stand for tools of a server, and need its address
    for name in available().keys() - elsewhere:
        assert load_tool(name).name == name
    for name in elsewhere:
        with pytest.raises(ToolConfigError, match="missing"):
            load_tool(name)
    for name in available_formats():
        assert get_format(name).name == name


def test_looking_imports_nothing(install):
    folder = install("echo-tools", {"echo": "echo_plugin:Echo"}, source="raise RuntimeError('imported')")
    program = (
        "import sys; sys.path.insert(0, sys.argv[1])\n"
        "from agentr1_tools import available\n"
        "assert available()['echo'].version == '1.2'\n"
        "assert not {'echo_plugin', 'agentr1_tools.calculator', 'agentr1_tools.wiki_index', 'bm25s', 'httpx'} "
        "& sys.modules.keys()\n"
    )
    subprocess.run([sys.executable, "-c", program, str(folder)], check=True, timeout=60)


def test_a_class_a_factory_and_a_finished_tool_can_be_offered(install):
    install("echo-tools", {"echo": "echo_plugin:Echo", "shout": "echo_plugin:shout"})
    install("echo-tools-two", {"echo2": "echo_plugin:Echo"})
    assert available()["echo"].distribution == "echo-tools"
    assert load_tool("echo", times=3).execute({})["data"] == 3
    assert load_tool("shout").execute({"text": "a"})["data"] == "A"


def test_a_factory_is_called_with_the_configuration(install):
    install("echo-tools", {"echo": "echo_plugin:make_echo"})
    assert load_tool("echo").execute({})["data"] == 2
    assert load_tool("echo", times=5).execute({})["data"] == 5


def test_two_distributions_with_one_name_are_both_named(install):
    install("echo-tools", {"echo": "echo_plugin:Echo"})
    install("rival-tools", {"echo": "rival_plugin:Echo", "free": "rival_plugin:Echo"}, module="rival_plugin")
    for look in (available, lambda: load_tool("echo")):
        with pytest.raises(DuplicateNameError, match=r"'echo'.*echo-tools 1.2.*rival-tools 1.2"):
            look()


def test_an_allow_list_without_the_name_settles_the_quarrel(install, monkeypatch):
    install("echo-tools", {"echo": "echo_plugin:Echo"})
    install("rival-tools", {"echo": "rival_plugin:Echo"}, module="rival_plugin")
    monkeypatch.setenv("AGENTR1_TOOLS", "calculator")
    assert list(available()) == ["calculator"]


def test_the_allow_list_restricts_what_is_seen_and_loaded(monkeypatch):
    monkeypatch.setenv("AGENTR1_TOOLS", " calculator , nothing ")
    assert list(available()) == ["calculator"]
    with pytest.raises(UnknownToolError, match="AGENTR1_TOOLS allows only calculator, nothing"):
        load_tool("wiki_search")
    assert "wiki_search" in available(allow=["wiki_search"])
    monkeypatch.setenv("AGENTR1_TOOLS", "")
    assert available() == {}


def test_an_unknown_name_gets_the_nearest():
    with pytest.raises(UnknownToolError, match=r"no tool 'calculater'; did you mean 'calculator'\?"):
        load_tool("calculater")
    with pytest.raises(UnknownFormatError, match=r"no format 'hermus'; did you mean 'hermes'\?"):
        get_format("hermus")


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        ("echo_plugin:Misnamed", "echo-tools 1.2 offers 'echo', but the tool calls itself 'other'"),
        ("echo_plugin:Missing", "echo_plugin:Missing of echo-tools 1.2 cannot be imported"),
        ("no_such_module:Echo", "cannot be imported: No module named 'no_such_module'"),
        ("echo_plugin:make_nothing", "None is not a tool"),
        ("echo_plugin:number", "neither a tool, a class nor a factory"),
    ],
)
def test_a_broken_plugin_is_named(install, entry, message):
    install("echo-tools", {"echo": entry})
    with pytest.raises(InvalidToolError, match=message):
        load_tool("echo")


def test_a_configuration_the_tool_does_not_take_is_said(install):
    install("echo-tools", {"echo": "echo_plugin:Echo", "shout": "echo_plugin:shout"})
    with pytest.raises(ToolConfigError, match=r"echo cannot be made from the configuration \{'tmes': 2\}"):
        load_tool("echo", tmes=2)
    with pytest.raises(ToolConfigError, match="finished tool and takes no configuration, but got volume"):
        load_tool("shout", volume=11)


def test_a_proxy_bears_the_name_of_what_it_stands_for(install):
    install("far-tools", {"far": "echo_plugin:Far"}, source=PLUGIN + "class Far(Misnamed):\n    proxy = True\n")
    assert load_tool("far").name == "other"


def test_a_format_is_made_from_its_configuration():
    text = "<tool_call>f()</tool_call>" * 3
    assert len(get_format("hermes", max_calls=2).parse(text).calls) == 2
    with pytest.raises(ToolConfigError, match=r"format hermes cannot be made .*'max_cals'"):
        get_format("hermes", max_cals=2)


def test_a_format_must_be_one(install):
    install("odd-formats", {"odd": "echo_plugin:make_nothing"}, group="agentr1.tool_formats")
    with pytest.raises(InvalidToolError, match="is no ToolFormat"):
        get_format("odd")
