from agentr1_tools import ToolResult
from agentr1_tools.cache import ResultCache


def test_a_success_is_kept_under_name_and_arguments():
    cache = ResultCache(8)
    cache.put("find", '{"x":1}', ToolResult.success([1]))
    assert cache.get("find", '{"x":1}').data == [1]
    assert cache.get("find", '{"x":2}') is None
    assert cache.get("other", '{"x":1}') is None


def test_an_error_is_not_kept():
    cache = ResultCache(8)
    cache.put("find", "{}", ToolResult.failure("TIMEOUT", "late"))
    assert cache.get("find", "{}") is None


def test_the_least_recently_used_goes_first():
    cache = ResultCache(2)
    cache.put("t", "a", ToolResult.success("a"))
    cache.put("t", "b", ToolResult.success("b"))
    assert cache.get("t", "a") is not None
    cache.put("t", "c", ToolResult.success("c"))
    assert cache.get("t", "b") is None
    assert cache.get("t", "a").data == "a"


def test_size_zero_keeps_nothing():
    cache = ResultCache(0)
    cache.put("t", "a", ToolResult.success("a"))
    assert cache.get("t", "a") is None


def test_what_a_caller_changes_does_not_reach_the_cache():
    cache = ResultCache(2)
    given = ToolResult.success({"titles": ["a"]})
    cache.put("t", "a", given)
    given.data["titles"].append("given")
    cache.get("t", "a").data["titles"].append("got")
    assert cache.get("t", "a").data == {"titles": ["a"]}
