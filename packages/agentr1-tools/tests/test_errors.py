from agentr1_tools.errors import DuplicateNameError, ErrorCode, ToolError, UnknownToolError, did_you_mean, listed


def test_every_code_of_the_contract_exists():
    assert set(ErrorCode) == {
        "PARSE_ERROR",
        "UNKNOWN_TOOL",
        "INVALID_ARGUMENT",
        "TIMEOUT",
        "RATE_LIMITED",
        "NETWORK_ERROR",
        "INVALID_RESULT",
        "EXECUTION_ERROR",
        "SANDBOX_ERROR",
        "CANCELLED",
    }


def test_did_you_mean_names_the_nearest_and_is_silent_without_one():
    assert did_you_mean("calculater", ["wiki_search", "calculator"]) == "; did you mean 'calculator'?"
    assert did_you_mean("zzz", ["wiki_search", "calculator"]) == ""
    assert did_you_mean("x", []) == ""


def test_errors_are_standard_errors_too():
    assert issubclass(UnknownToolError, LookupError)
    assert issubclass(DuplicateNameError, ValueError)
    assert ToolError("INVALID_CITY", "no such city").code == "INVALID_CITY"


def test_listed_is_in_order():
    assert listed({"b", "a"}) == "a, b"
    assert listed([]) == "none"
