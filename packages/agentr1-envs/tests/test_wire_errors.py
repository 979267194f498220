import gymnasium
import pytest
from agentr1_envs.errors import DataRowError, EnvsError, RemoteError, SettingError, UnknownTaskError
from agentr1_envs.wire import dumps, loads
from agentr1_envs.wire_errors import pack_error, raise_error, unpack_error


class HouseRuleError(SettingError):
    """Of a package that no client has."""


class NeedsTwoError(KeyError):
    def __init__(self, first: str, second: str) -> None:
        super().__init__(f"{first} and {second}")


def there_and_back(error: BaseException) -> Exception:
    return unpack_error(loads(dumps(pack_error(error))))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no"),
        KeyError("name"),
        OSError(2, "No such file"),
        ValueError(),
        UnicodeEncodeError("ascii", "é", 0, 1, "not in range"),
        UnknownTaskError("task_id='x' is not there"),
        DataRowError("file", 3, "field", "is empty"),
        gymnasium.error.ResetNeeded("call reset()"),
        gymnasium.error.InvalidAction("not a string"),
    ],
    ids=lambda error: type(error).__name__,
)
def test_what_both_sides_know_is_the_same_error(error: Exception) -> None:
    back = there_and_back(error)
    assert type(back) is type(error)
    assert (str(back), back.args) == (str(error), error.args)


def test_details_of_an_error_come_along() -> None:
    back = there_and_back(DataRowError("file", 3, "field", "is empty"))
    assert isinstance(back, DataRowError)
    assert (back.path, back.line, back.field, back.problem) == ("file", 3, "field", "is empty")


def test_a_strangers_error_is_the_nearest_base_and_named() -> None:
    back = there_and_back(HouseRuleError("no shoes"))
    assert type(back) is SettingError
    assert str(back) == "HouseRuleError: no shoes"
    back = there_and_back(NeedsTwoError("a", "b"))
    assert type(back) is KeyError
    assert back.args == ("NeedsTwoError: 'a and b'",)


def test_arguments_that_cannot_travel_leave_the_text() -> None:
    back = there_and_back(ValueError(object))
    assert type(back) is ValueError
    assert "object" in str(back)


def test_an_error_without_text_travels_too() -> None:
    class Mute(ValueError):
        def __str__(self) -> str:
            raise RuntimeError

        __reduce__ = __str__  # type: ignore[assignment]

    assert str(there_and_back(Mute())) == "Mute: (a Mute that has no text)"


def test_what_ends_a_program_is_an_error_here() -> None:
    back = there_and_back(SystemExit(3))
    assert type(back) is RuntimeError
    assert str(back) == "SystemExit: 3"


@pytest.mark.parametrize(
    "told", [{}, {"classes": [], "args": [], "text": ""}, {"classes": [1], "args": [], "text": ""}]
)
def test_an_error_of_no_known_form_is_one_of_the_server(told: dict) -> None:
    assert type(unpack_error(told)) is RemoteError


def test_names_import_nothing() -> None:
    told = {"classes": ["os.system", "antigravity.Error"], "args": ["true"], "text": "x"}
    assert type(unpack_error(told)) is RuntimeError
    told = {"classes": ["builtins.eval"], "args": ["1 / 0"], "text": "x"}
    assert type(unpack_error(told)) is RuntimeError


def test_it_says_where_it_was_raised() -> None:
    with pytest.raises(EnvsError) as caught:
        raise_error(pack_error(SettingError("no")), "ws://here:1")
    assert caught.value.__notes__ == ["raised by the environment at ws://here:1"]
