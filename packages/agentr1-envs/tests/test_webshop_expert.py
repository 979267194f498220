from collections.abc import Sequence

from agentr1_envs.webshop.expert import demonstration
from agentr1_envs.webshop.goals import Goal
from agentr1_envs.webshop.products import Product

TEA = Product("B0TEA", "Tea [tin]", options={"size": ("big", "small")})
SHELF = (*(Product(f"B{number}", "Cup") for number in range(24)), TEA)
GOAL = Goal(7, "B0TEA", "Tea", "", "", "Buy Tea", (), {"size": "small", "color": "gone"}, 10.0, 1.0)


def test_it_takes_the_first_query_that_lists_the_product_at_once() -> None:
    def find(query: str, hits: int) -> Sequence[Product]:
        return (TEA,) if query == "tea tin" else SHELF[:hits]

    assert demonstration(GOAL, TEA, find) == ["search[tea tin]", "click[b0tea]", "click[small]", "click[buy now]"]


def test_it_turns_pages_where_no_query_does() -> None:
    script = demonstration(GOAL, TEA, lambda query, hits: SHELF[:hits])
    assert script[:4] == ["search[buy tea]", "click[next >]", "click[next >]", "click[b0tea]"]
