"""A stranger's plugin, installed for real: built into a wheel, installed with plain pip and no index, and found."""

import json
import os
import re
import subprocess
import sys
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "guides" / "tool_plugin.md"
FILE = re.compile(r"```\w+ title=\"(?P<name>[\w.]+)\"\n(?P<text>.*?)```", re.DOTALL)
PLUGIN = ROOT / "integration_tests" / "plugins" / "agentr1-tool-weather"
RIVAL = """
[project]
name = "agentr1-tool-rival"
version = "7.1"
[project.entry-points."agentr1.tools"]
weather = "rival_weather:Weather"
[build-system]
requires = ["hatchling"]
build-backend = "hatchling.build"
[tool.hatch.build.targets.wheel]
only-include = ["rival_weather.py"]
"""

pytestmark = pytest.mark.slow


def run(*command, check=True, **environment):
    """One command in a clean environment: no PYTHONPATH, no settings of pip's."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PIP_", "AGENTR1_"))}
    return subprocess.run(
        [str(part) for part in command],
        capture_output=True,
        text=True,
        timeout=300,
        check=check,
        env={**clean, **environment},
        cwd=ROOT.anchor,
    )


def build_wheel(project, target):
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(target)],
        cwd=project,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """The folders pip may install from: what was just built, and the wheelhouse with everything else."""
    wheelhouse = Path(os.environ.get("AGENTR1_WHEELHOUSE", ROOT / "wheelhouse"))
    if not wheelhouse.is_dir():
        reason = f"no wheelhouse at {wheelhouse}; make setup fills it, AGENTR1_WHEELHOUSE names another"
        if os.environ.get("CI") == "true":
            pytest.fail(reason)
        pytest.skip(reason)
    built = tmp_path_factory.mktemp("wheels")
    for project in (ROOT / "packages" / "agentr1-tools", PLUGIN):
        build_wheel(project, built)
    return [built, wheelhouse]


@pytest.fixture(scope="module")
def environment(wheels, tmp_path_factory):
    """A fresh environment with the plugin; agentr1-tools comes with it, as its dependency."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=True)
    install(folder, wheels, "agentr1-tool-weather")
    return folder / "bin"


def install(folder, wheels, *packages):
    links = [part for wheel_folder in wheels for part in ("--find-links", wheel_folder)]
    run(folder / "bin" / "python", "-m", "pip", "--isolated", "install", "--no-index", "-q", *links, *packages)


def python(environment, program, **variables):
    """Run a program that prints one JSON value; returns the value."""
    return json.loads(run(environment / "python", "-c", program, **variables).stdout)


def test_it_is_found_without_being_imported(environment):
    found = python(
        environment,
        "import json, sys, agentr1_tools\n"
        "infos = {name: [info.distribution, info.version] for name, info in agentr1_tools.available().items()}\n"
        "imported = [name for name in sys.modules if name.startswith('agentr1_tool_weather')]\n"
        "print(json.dumps([infos, imported, agentr1_tools.__file__]))\n",
    )
    infos, imported, place = found
    assert infos["weather"] == ["agentr1-tool-weather", "0.1.0"]
    assert infos["wind_chill"] == ["agentr1-tool-weather", "0.1.0"]
    assert infos["calculator"] == ["agentr1-tools", "0.1.0"]
    assert imported == []
    assert Path(place).is_relative_to(environment.parent)


def test_its_tools_run_in_a_box(environment):
    results = python(
        environment,
        "import json\n"
        "from agentr1_tools import ToolBox, ToolCall, load_tool\n"
        "with ToolBox([load_tool('weather'), 'wind_chill']) as box:\n"
        "    results = box.call_many([\n"
        "        ToolCall('weather', {'city': 'nordhavn'}),\n"
        "        ToolCall('weather', {'city': 'Nordhaven'}),\n"
        "        ToolCall('wind_chill', {'celsius': -10, 'wind_kmh': 30}),\n"
        "        ToolCall('wind_chill', {'celsius': 30, 'wind_kmh': 30}),\n"
        "    ])\n"
        "print(json.dumps([[result.data, result.error, result.text] for result in results]))\n",
    )
    (found, missing, chill, warm) = results
    assert found[0] == {"city": "Nordhavn", "celsius": -4.5, "wind_kmh": 32.0, "sky": "snow"}
    assert found[2] == "Nordhavn: -4.5 °C, wind 32 km/h, snow"
    assert missing[1] == "INVALID_CITY"
    assert "did you mean 'Nordhavn'?" in missing[2]
    assert chill[0] == -19.5
    assert warm[1] == "INVALID_ARGUMENT"


def test_the_console_script_knows_it(environment, tmp_path):
    script = environment / "agentr1-tools"
    table = run(script, "list").stdout
    assert "agentr1_tool_weather.weather:Weather" in table
    assert "wind_chill" in table
    assert "Air temperature." in run(script, "describe", "wind_chill").stdout
    assert run(script, "call", "wind_chill", '{"celsius": -10, "wind_kmh": 30}').stdout == "-19.5\n"
    stations = tmp_path / "stations.csv"
    stations.write_text("city,celsius,wind_kmh,sky\nOslo,20,5,clear\n", encoding="utf-8")
    config = json.dumps({"stations": str(stations)})
    told = run(script, "call", "weather", '{"city": "Oslo"}', "--config", config)
    assert told.stdout == "Oslo: 20 °C, wind 5 km/h, clear\n"
    failed = run(script, "call", "weather", '{"city": "Oslo"}', check=False)
    assert (failed.returncode, "INVALID_CITY" in failed.stderr) == (1, True)


def test_the_tools_keep_the_contract(environment):
    script = environment / "agentr1-tools"
    assert run(script, "check", "weather", "--example", '{"city": "Nordhavn"}').stdout == "weather keeps the contract\n"
    assert run(script, "check", "wind_chill").returncode == 0
    guessed = run(script, "check", "weather", check=False)
    assert (guessed.returncode, "give examples=" in guessed.stderr) == (1, True)


def test_the_plugin_of_the_guide_is_built_installed_and_checked(environment, tmp_path):
    """The two files stand on the page as they are here."""
    files = {match["name"]: match["text"] for match in FILE.finditer(PAGE.read_text(encoding="utf-8"))}
    assert set(files) == {"pyproject.toml", "agentr1_tool_roman.py"}
    assert sum(bool(line.strip()) for text in files.values() for line in text.splitlines()) <= 30
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    build_wheel(tmp_path, tmp_path / "dist")
    install(environment.parent, [tmp_path / "dist"], "agentr1-tool-roman")
    try:
        script = environment / "agentr1-tools"
        assert run(script, "call", "roman_number", '{"number": 1994}').stdout == "MCMXCIV\n"
        assert run(script, "check", "roman_number").stdout == "roman_number keeps the contract\n"
        refused = run(script, "call", "roman_number", '{"number": 0}', check=False)
        assert (refused.returncode, "INVALID_ARGUMENT" in refused.stderr) == (1, True)
    finally:
        run(environment / "python", "-m", "pip", "--isolated", "uninstall", "-q", "-y", "agentr1-tool-roman")


def test_the_allow_list_hides_it(environment):
    table = run(environment / "agentr1-tools", "list", AGENTR1_TOOLS="calculator").stdout
    assert "calculator" in table
    assert "weather" not in table
    hidden = run(environment / "agentr1-tools", "describe", "weather", check=False, AGENTR1_TOOLS="calculator")
    assert (hidden.returncode, "AGENTR1_TOOLS allows only calculator" in hidden.stderr) == (2, True)


def test_a_rival_with_the_same_name_is_an_error_that_names_both(environment, wheels, tmp_path):
    (tmp_path / "pyproject.toml").write_text(RIVAL, encoding="utf-8")
    (tmp_path / "rival_weather.py").write_text("raise RuntimeError('a look must not import')\n", encoding="utf-8")
    build_wheel(tmp_path, tmp_path / "dist")
    install(environment.parent, [tmp_path / "dist"], "agentr1-tool-rival")
    try:
        quarrel = run(environment / "agentr1-tools", "list", check=False)
        assert quarrel.returncode == 2
        assert quarrel.stderr.count("\n") == 1
        for part in ("'weather'", "agentr1-tool-weather 0.1.0", "agentr1-tool-rival 7.1"):
            assert part in quarrel.stderr
        settled = run(environment / "agentr1-tools", "list", AGENTR1_TOOLS="calculator,wind_chill")
        assert "wind_chill" in settled.stdout
    finally:
        run(environment / "python", "-m", "pip", "--isolated", "uninstall", "-q", "-y", "agentr1-tool-rival")
    assert "agentr1-tool-weather" in run(environment / "agentr1-tools", "list").stdout
