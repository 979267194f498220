import json

import pytest
from agentr1_tools import ToolResult

pytest.importorskip("fastapi", reason="the extra serve is not installed")
from agentr1_tools.serving.answers import as_json, as_response, json_response


def test_any_text_gets_through():
    for text in ("plain", "\ud800", "ü\n\x00", "😀"):
        body = json_response({"text": text}).body
        assert body.isascii()
        assert json.loads(body) == {"text": text}


def test_a_result_has_all_its_fields():
    result = ToolResult.failure("ODD", "so", data={"a": 1}).with_metrics(seconds=0.5)
    assert as_json(result) == {
        "status": "error",
        "data": {"a": 1},
        "error": "ODD",
        "text": "Error [ODD]: so",
        "metrics": {"seconds": 0.5},
        "source": "",
    }
    response = as_response(result, 413)
    assert (response.status_code, response.media_type) == (413, "application/json")
    assert ToolResult(**json.loads(response.body)) == result
