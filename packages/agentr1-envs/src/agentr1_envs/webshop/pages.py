"""The pages of the shop: a customer's way through them, and what each page shows.

A `Visit` is one customer's state; `search` and `click` change it. What a page shows is a list of `Node`s, which
`observations.py` turns into text. Pages exist as nodes only; nothing here knows of rewards.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

from agentr1_envs.webshop.goals import Goal
from agentr1_envs.webshop.products import Product

PER_PAGE = 10
MOST_HITS = 50
SITE = "http://127.0.0.1:3000"

SEARCH, BACK, PREV, NEXT, BUY = "Search", "Back to Search", "< Prev", "Next >", "Buy Now"
SUB_PAGES = ("Description", "Features", "Reviews")
_BUTTONS = {label.lower(): label for label in (*SUB_PAGES, BACK, PREV, NEXT, BUY)}

PageName = Literal["index", "results", "item", "sub", "done"]
Search = Callable[[str, int], Sequence[Product]]


class Node(NamedTuple):
    """One piece of text on a page."""

    text: str
    kind: Literal["text", "button", "product", "option"] = "text"
    option: str = ""
    """The name of the option whose value this is."""


@dataclass(slots=True)
class Visit:
    """One customer's state."""

    goal: Goal
    find: Search
    """The shop's search: the best products for a query, at most so many."""
    page: PageName = "index"
    keywords: list[str] = field(default_factory=list[str])
    hits: Sequence[Product] = ()
    number: int = 1
    """Of the page of results, from 1."""
    product: Product | None = None
    sub_page: str = ""
    options: dict[str, str] = field(default_factory=dict[str, str])
    """Chosen so far: name to value, in the order of choice."""
    seen: set[str] = field(default_factory=set[str])
    """Asins of the products looked at since the last Back to Search."""
    reward: float = 0.0
    """What the purchase paid; the last page shows it."""

    def search(self, query: str) -> None:
        """Show the first page of results for a query, from any page."""
        self.keywords = query.split(" ")
        self.hits = self.find(query, MOST_HITS)
        self._show_results(1)

    def click(self, name: str) -> bool:
        """Click what the page offers under this lower-case name; false, and no change, when it offers no such thing."""
        if name == SEARCH.lower():
            return False
        clicked = clickable_nodes(self.nodes()).get(name)
        if clicked is None:
            return False
        label = _BUTTONS.get(name, "")
        if label == BUY:
            self.page = "done"
        elif label == BACK:
            self._start_again()
        elif label in SUB_PAGES:
            self.page, self.sub_page = "sub", label
        elif self.page == "results" and label in (NEXT, PREV):
            self._show_results(self.number + (1 if label == NEXT else -1))
        elif self.page == "item" and label == PREV:
            self._show_results(self.number)
        elif self.page == "sub":
            self.page = "item"
        elif clicked.kind == "product":
            self.product = next(product for product in self.hits if product.asin == clicked.text)
            self.seen.add(clicked.text)
            self.page = "item"
        else:
            self.options[clicked.option] = name
        return True

    def nodes(self) -> list[Node]:
        """What the page shows, in order."""
        return _PAGES[self.page](self)

    def clickables(self) -> tuple[str, ...]:
        """Lower-case names of what can be clicked: buttons, then products, then option values, each once."""
        return tuple(clickable_nodes(self.nodes()))

    def url(self) -> str:
        """The page's address. Chosen options stand in it as JSON on item pages and as Python's repr elsewhere."""
        if self.page == "index":
            return f"{SITE}/{self.goal.index}"
        words = "+".join(self.keywords)
        if self.page == "results":
            return f"{SITE}/search_results/{self.goal.index}/{words}/{self.number}"
        place = f"{self.goal.index}/{self.product.asin if self.product else ''}"
        if self.page == "done":
            return f"{SITE}/done/{place}/{self.options}"
        if self.page == "sub":
            return f"{SITE}/item_sub_page/{place}/{words}/{self.number}/{self.sub_page}/{self.options}"
        return f"{SITE}/item_page/{place}/{words}/{self.number}/{json.dumps(self.options)}"

    def _show_results(self, number: int) -> None:
        self.page, self.number = "results", number
        self.product, self.options = None, {}

    def _start_again(self) -> None:
        self.page, self.number, self.keywords, self.hits = "index", 1, [], ()
        self.product, self.options, self.seen = None, {}, set()


def clickable_nodes(nodes: Sequence[Node]) -> dict[str, Node]:
    """Lower-case name to node; of several option values with one name the last counts, in the place of the first."""
    buttons = {node.text.lower(): node for node in nodes if node.kind == "button"}
    products = {node.text.lower(): node for node in nodes if node.kind == "product"}
    options = {node.text: node for node in nodes if node.kind == "option"}
    return {**buttons, **products, **options}


def _index(visit: Visit) -> list[Node]:
    return [Node("WebShop"), Node("Instruction: "), Node(visit.goal.instruction), Node(SEARCH, "button")]


def _top(visit: Visit) -> list[Node]:
    return [Node("Instruction:"), Node(visit.goal.instruction), Node(BACK, "button")]


def _results(visit: Visit) -> list[Node]:
    shown = visit.hits[(visit.number - 1) * PER_PAGE : visit.number * PER_PAGE]
    nodes = [*_top(visit), Node(f"Page {visit.number} (Total results: {len(visit.hits)})")]
    if visit.number > 1:
        nodes.append(Node(PREV, "button"))
    nodes.append(Node(NEXT, "button"))
    for product in shown:
        nodes += [Node(product.asin, "product"), Node(product.title), Node(product.price_tag)]
    return nodes


def _item(visit: Visit) -> list[Node]:
    product = _shown(visit)
    nodes = [*_top(visit), Node(PREV, "button")]
    for name, values in product.options.items():
        nodes += [Node(name), *(Node(value, "option", name) for value in values)]
    nodes += [Node(product.title), Node(f"Price: {product.price_tag}"), Node("Rating: N.A.")]
    return nodes + [Node(label, "button") for label in (*SUB_PAGES, BUY)]


def _sub(visit: Visit) -> list[Node]:
    product = _shown(visit)
    texts = {"Description": (product.description,), "Features": [f" {bullet}" for bullet in product.bullets]}.get(
        visit.sub_page, ()
    )
    return [*_top(visit), Node(PREV, "button"), *map(Node, texts)]


_PURCHASED = ("attrs", "category", "query", "product category")
_TARGET = ("Target", "asin", "options", "attrs", "price upper", "instuction text")
_GOAL = ("category", "product category", "query", "Goal ", "None")


def _done(visit: Visit) -> list[Node]:
    purchase = ["Purchased", "asin", _shown(visit).asin, "options", _json_in_html(visit.options)]
    unknown = [text for name in _PURCHASED for text in (name, "None")]
    score = ["Reward", "Your score (min 0.0, max 1.0)", str(visit.reward), "Reward Details ", "None"]
    greeting = ["Thank you for shopping with us!", "Your code: ", "None", " (Paste it in your MTurk interface.)"]
    return [Node(text) for text in [*greeting, *purchase, *unknown, *_TARGET, *_GOAL, *score]]


def _json_in_html(options: dict[str, str]) -> str:
    """JSON with sorted keys and without the letters that mean something in HTML."""
    written = json.dumps(options, sort_keys=True)
    for letter in "<>&'":
        written = written.replace(letter, f"\\u{ord(letter):04x}")
    return written


def _shown(visit: Visit) -> Product:
    assert visit.product is not None, "item pages have a product"
    return visit.product


_PAGES: dict[PageName, Callable[[Visit], list[Node]]] = {
    "index": _index,
    "results": _results,
    "item": _item,
    "sub": _sub,
    "done": _done,
}
