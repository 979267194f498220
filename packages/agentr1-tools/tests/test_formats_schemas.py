from agentr1_tools.formats.schemas import json_lines, signature, signature_lines, typescript

SCHEMA = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "Find it.",
        "parameters": {
            "type": "object",
            "properties": {
                "query": {"type": "string", "description": "What."},
                "top": {"type": "integer", "default": 5},
                "kind": {"enum": ["a", "b"]},
                "ids": {"type": "array", "items": {"anyOf": [{"type": "integer"}, {"type": "null"}]}},
                "any": {"type": ["number", "string"]},
            },
            "required": ["query"],
        },
    },
}
BARE = {"type": "function", "function": {"name": "now", "description": "Tell.", "parameters": {"type": "object"}}}


def test_signatures():
    assert signature(SCHEMA) == "find(query, top=5, kind=null, ids=null, any=null)"
    assert signature_lines([BARE]) == "- now(): Tell."
    assert json_lines([BARE, BARE]).count("\n") == 1


def test_typescript():
    assert typescript(BARE) == "// Tell.\ntype now = () => any;"
    assert typescript(SCHEMA) == (
        "// Find it.\ntype find = (_: {\n// What.\nquery: string,\ntop?: number, // default: 5\n"
        'kind?: "a" | "b",\nids?: (number | null)[],\nany?: number | string,\n}) => any;'
    )
