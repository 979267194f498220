from agentr1_tools import CallError, ParsedResponse, ToolCall


def test_calls_and_errors_keep_the_order_of_the_response():
    first, broken, second = ToolCall("a"), CallError("PARSE_ERROR", "broken"), ToolCall("b", {"x": 1})
    response = ParsedResponse("text", (first, broken, second))
    assert response.calls == (first, second)
    assert response.errors == (broken,)


def test_two_calls_do_not_share_their_arguments():
    first, second = ToolCall("a"), ToolCall("a")
    first.arguments["x"] = 1
    assert second.arguments == {}
