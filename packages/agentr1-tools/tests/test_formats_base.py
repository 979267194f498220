from agentr1_tools import ToolFormat


def test_a_strangers_class_is_a_format_by_its_shape():
    class Lines:
        name = "lines"
        call_end = ""
        result_start = "result:"
        names_arguments = True

        def instructions(self, schemas):
            return ""

        def parse(self, text):
            return None

        def render(self, results):
            return ""

        def format_call(self, call):
            return ""

    assert isinstance(Lines(), ToolFormat)
    assert not isinstance(object(), ToolFormat)
