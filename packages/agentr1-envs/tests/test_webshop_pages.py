from collections.abc import Sequence

import pytest
from agentr1_envs.webshop.goals import Goal
from agentr1_envs.webshop.pages import Visit
from agentr1_envs.webshop.products import Product

TEA = Product(
    "B0TEA",
    "Tea",
    description="Fresh.",
    bullets=("one", "two"),
    options={"size": ("big", "reviews", "both"), "color": ("both", "green")},
)
SHELF = (TEA, *(Product(f"B{number}", f"Cup {number}") for number in range(24)))
GOAL = Goal(7, "B0TEA", "Tea", "", "", "buy tea", (), {}, 10.0, 1.0)


@pytest.fixture
def visit() -> Visit:
    def find(query: str, hits: int) -> Sequence[Product]:
        return SHELF[:hits] if query == "tea" else ()

    return Visit(GOAL, find)


def go(visit: Visit, *clicks: str) -> list[bool]:
    return [visit.click(name) for name in clicks]


def texts(visit: Visit) -> list[str]:
    return [node.text for node in visit.nodes()]


def test_pages_of_results_go_past_the_end(visit: Visit) -> None:
    visit.search("tea")
    assert "< prev" not in visit.clickables()
    assert go(visit, "next >", "next >", "next >") == [True] * 3
    assert visit.clickables() == ("back to search", "< prev", "next >")
    assert "Page 4 (Total results: 25)" in texts(visit)
    assert go(visit, "< prev") == [True]
    assert visit.clickables()[3:] == ("b19", "b20", "b21", "b22", "b23")


def test_an_item_goes_back_to_its_page_and_forgets_its_options(visit: Visit) -> None:
    visit.search("tea")
    go(visit, "b0tea", "green", "description")
    assert texts(visit)[-1] == "Fresh."
    assert visit.url().endswith("/item_sub_page/7/B0TEA/tea/1/Description/{'color': 'green'}")
    go(visit, "< prev")
    assert (visit.page, visit.options) == ("item", {"color": "green"})
    assert visit.url().endswith('/item_page/7/B0TEA/tea/1/{"color": "green"}')
    go(visit, "features")
    assert texts(visit)[-2:] == [" one", " two"]
    go(visit, "< prev", "< prev")
    assert (visit.page, visit.options, visit.product) == ("results", {}, None)
    assert visit.seen == {"B0TEA"}


def test_a_value_of_several_options_goes_to_the_last_and_buttons_go_first(visit: Visit) -> None:
    visit.search("tea")
    go(visit, "b0tea", "both")
    assert visit.options == {"color": "both"}
    go(visit, "reviews")
    assert visit.sub_page == "Reviews"
    assert list(visit.options) == ["color"]


def test_a_search_is_legal_anywhere_and_clears_the_item(visit: Visit) -> None:
    visit.search("tea")
    go(visit, "b0tea", "green")
    visit.search("nothing  here")
    assert (visit.page, visit.product, visit.options) == ("results", None, {})
    assert visit.url().endswith("/search_results/7/nothing++here/1")


def test_back_to_search_clears_everything_but_the_goal(visit: Visit) -> None:
    visit.search("tea")
    go(visit, "b0tea", "green", "back to search")
    assert (visit.page, visit.keywords, visit.options, visit.seen, visit.goal) == ("index", [], {}, set(), GOAL)
    assert go(visit, "search", "buy now", "green", "b0tea") == [False] * 4


def test_the_last_page_offers_nothing(visit: Visit) -> None:
    visit.search("tea")
    go(visit, "b0tea", "green", "big", "buy now")
    assert visit.page == "done"
    assert visit.clickables() == ()
    assert '{"color": "green", "size": "big"}' in texts(visit)
    assert visit.url().endswith("/done/7/B0TEA/{'color': 'green', 'size': 'big'}")
