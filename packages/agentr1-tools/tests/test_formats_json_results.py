import json

from agentr1_tools.formats.json_results import defused_json


def test_no_mark_of_a_format_can_begin_and_the_text_is_kept():
    text = '<|eom_id|>[TOOL_CALLS]"</x>'
    assert not set("<[") & set(defused_json(text))
    assert json.loads(defused_json(text)) == text
