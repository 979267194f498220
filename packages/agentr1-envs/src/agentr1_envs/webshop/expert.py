"""The scripted expert: it knows the goal's product and options, and finds the product with the shop's own search."""

from agentr1_envs.webshop.goals import Goal
from agentr1_envs.webshop.pages import MOST_HITS, PER_PAGE, Search
from agentr1_envs.webshop.products import Product

_BRACKETS = str.maketrans("[]", "  ")
"""A query with brackets would be read as another action."""


def demonstration(goal: Goal, product: Product, search: Search) -> list[str]:
    """Actions that buy the goal's product with the goal's options; the query is one that lists it early."""
    query, place = _best_query(goal, product, search)
    turns = ["click[next >]"] * (place // PER_PAGE)
    options = [f"click[{value}]" for value in dict.fromkeys(goal.option_values) if _offers(product, value)]
    return [f"search[{query}]", *turns, f"click[{product.asin.lower()}]", *options, "click[buy now]"]


def _best_query(goal: Goal, product: Product, search: Search) -> tuple[str, int]:
    """The first query that lists the product on its first page, or the one that lists it earliest."""
    best = ("", MOST_HITS)
    for text in (goal.instruction, product.title, product.document):
        query = " ".join(text.lower().translate(_BRACKETS).split())
        asins = [hit.asin for hit in search(query, MOST_HITS)]
        place = asins.index(product.asin) if product.asin in asins else MOST_HITS
        if place < PER_PAGE:
            return query, place
        best = min(best, (query, place), key=lambda found: found[1])
    return best


def _offers(product: Product, value: str) -> bool:
    return any(value in values for values in product.options.values())
