from agentr1_tools import ToolBox, ToolCall, load_tool


def test_the_answer_comes_back_as_it_was_given_and_must_be_there():
    finish = load_tool("finish")
    finish.timeout = 10.0
    with ToolBox([finish]) as box:
        answered = box.call(ToolCall("finish", {"answer": "  Marie Curie\n"}))
        positional = box.call(ToolCall("finish", positional=("Paris",)))
        missing = box.call(ToolCall("finish"))
    assert (answered.ok, answered.data, answered.source) == (True, {"answer": "  Marie Curie\n"}, "finish")
    assert positional.data == {"answer": "Paris"}
    assert "call finish alone" in positional.text
    assert missing.error == "INVALID_ARGUMENT"
