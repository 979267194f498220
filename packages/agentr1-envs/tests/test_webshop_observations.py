from agentr1_envs.webshop.goals import Goal
from agentr1_envs.webshop.observations import observe
from agentr1_envs.webshop.pages import Visit
from agentr1_envs.webshop.products import Product

TEA = Product("B0TEA", " Tea & <Cup> ", description="", bullets=("", "one "), options={"size": ("big", "small")})
VISIT = Visit(Goal(7, "B0TEA", "Tea", "", "", "buy tea", (), {}, 10.0, 1.0), lambda query, hits: (TEA,))


def test_empty_texts_are_left_out_and_blanks_kept_in_rich_text() -> None:
    VISIT.search("tea")
    for name in ("b0tea", "features"):
        VISIT.click(name)
    assert observe(VISIT, "text").endswith("Back to Search [SEP] < Prev [SEP]  [SEP] one")
    assert observe(VISIT, "text_rich").endswith("[button] < Prev [button_]\n \n one \n")
    for name in ("< prev", "description"):
        VISIT.click(name)
    assert observe(VISIT, "text").endswith("Back to Search [SEP] < Prev")


def test_what_was_chosen_and_visited_is_marked() -> None:
    VISIT.search("tea")
    VISIT.click("b0tea")
    VISIT.click("small")
    rich = observe(VISIT, "text_rich")
    assert rich.startswith("You have clicked small.\nInstruction:\n")
    assert "  [button] big [button_]\n  [clicked button] small [clicked button_]\n Tea & <Cup> \n" in rich
    VISIT.click("< prev")
    assert "\n\n[clicked button] B0TEA [clicked button_]\n" in observe(VISIT, "text_rich")


def test_html_is_a_page_for_people() -> None:
    VISIT.search("tea")
    VISIT.click("b0tea")
    VISIT.click("big")
    page = observe(VISIT, "html")
    assert "<p> Tea &amp; &lt;Cup&gt; </p>" in page
    assert "<button><b>big</b></button>\n<button>small</button>" in page
