import pytest
from agentr1_tools.docstrings import described


def google(city, days):
    """Forecast the weather.

    Looks a few days ahead.

    Args:
        city: Where, in
            any spelling.
        days: How far.
    """


def numpy(city, days):
    """Forecast the weather.

    Looks a few days ahead.

    Parameters
    ----------
    city : str
        Where, in
        any spelling.
    days : int
        How far.
    """


def rest(city, days):
    """Forecast the weather.

    Looks a few days ahead.

    :param city: Where, in
        any spelling.
    :param days: How far.
    """


@pytest.mark.parametrize("function", [google, numpy, rest])
def test_three_styles_say_the_same(function):
    summary, parameters = described(function)
    assert summary == "Forecast the weather.\n\nLooks a few days ahead."
    assert parameters == {"city": "Where, in any spelling.", "days": "How far."}


def test_no_docstring_is_no_description():
    assert described(lambda x: x) == ("", {})
