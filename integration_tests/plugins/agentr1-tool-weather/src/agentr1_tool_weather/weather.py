"""`weather`: the latest observation of a station, out of a CSV file. It asks no network."""

import csv
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path
from typing import Any

from agentr1_tools import BaseTool, ToolError
from agentr1_tools.errors import ToolConfigError, did_you_mean

_COLUMNS = {"city", "celsius", "wind_kmh", "sky"}
_PARAMETERS: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"type": "string", "minLength": 1, "description": "The station's city."}},
    "required": ["city"],
    "additionalProperties": False,
}


class Weather(BaseTool):
    """stations: a CSV file with the columns city, celsius, wind_kmh, sky; else the package's invented one."""

    name = "weather"
    description = "Tell the latest weather observed in a city."
    parameters = _PARAMETERS

    def __init__(self, stations: str | None = None) -> None:
        self._path: Traversable = (
            resources.files("agentr1_tool_weather") / "stations.csv" if stations is None else Path(stations)
        )
        self._stations: dict[str, dict[str, Any]] = {}

    def open(self) -> None:
        """Read the file. Raises FileNotFoundError, and ToolConfigError for a column that is missing."""
        with self._path.open(encoding="utf-8") as lines:
            reader = csv.DictReader(lines)
            if missing := _COLUMNS - set(reader.fieldnames or ()):
                raise ToolConfigError(f"{self._path} lacks the columns {sorted(missing)}; it needs {sorted(_COLUMNS)}")
            self._stations = {row["city"].casefold(): _observation(row) for row in reader}

    def execute(self, params: dict[str, Any]) -> dict[str, Any]:
        """The observation, or INVALID_CITY with the nearest name."""
        city = str(params["city"])
        found = self._stations.get(city.strip().casefold())
        if found is None:
            cities = [station["city"] for station in self._stations.values()]
            raise ToolError("INVALID_CITY", f"no station in {city!r}{did_you_mean(city, cities)}")
        text = f"{found['city']}: {found['celsius']:g} °C, wind {found['wind_kmh']:g} km/h, {found['sky']}"
        return {"status": "success", "data": found, "text": text}


def _observation(row: dict[str, str]) -> dict[str, Any]:
    return {
        "city": row["city"],
        "celsius": float(row["celsius"]),
        "wind_kmh": float(row["wind_kmh"]),
        "sky": row["sky"],
    }
