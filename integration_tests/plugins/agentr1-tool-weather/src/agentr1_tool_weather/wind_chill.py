"""`wind_chill`: a tool that is one function."""

from typing import Annotated

from agentr1_tools import tool
from pydantic import Field


@tool
def wind_chill(
    celsius: Annotated[float, Field(ge=-90, le=10)],
    wind_kmh: Annotated[float, Field(ge=4.8, le=400)],
) -> float:
    """Compute the temperature that is felt in the wind, in degrees Celsius.

    The index of the Joint Action Group for Temperature Indices (2001), which the weather services of Canada and the
    United States use; it holds up to 10 °C and from 4.8 km/h.

    Args:
        celsius: Air temperature.
        wind_kmh: Wind speed at ten metres.
    """
    wind = wind_kmh**0.16
    return round(13.12 + 0.6215 * celsius - 11.37 * wind + 0.3965 * celsius * wind, 1)
