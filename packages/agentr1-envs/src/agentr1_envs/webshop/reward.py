"""What a purchase is worth (Yao et al. 2022, section 3.1, as the published code computes it).

    reward = r_type (matched attributes + matched options + [price is low enough]) / (attributes + options + 1)

Each part also stands alone, with its share of the sum. `option_match="upstream"` keeps a quirk of the published code:
a synthetic goal's options are compared as pairs, so a colour written otherwise than in the list never matches.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

from rapidfuzz import fuzz
from rapidfuzz.utils import default_process

from agentr1_envs.webshop.goals import Goal, GoalOptions
from agentr1_envs.webshop.products import Product

OptionMatch = Literal["upstream", "values"]
OPTION_MATCHES: tuple[OptionMatch, ...] = ("upstream", "values")

CLOSE_ENOUGH = 85
"""Texts match above this ratio."""
_COLOURS = """
alabaster apricot aqua ash asphalt azure banana beige black blue blush bordeaux bronze brown burgundy camel camo
caramel champagne charcoal cheetah chestnut chocolate christmas coffee cognac copper coral cranberry cream
crystal dark denim eggplant elephant espresso fuchsia gold granite grape graphite grass gray green grey heather
indigo ivory ivy khaki lavender lemon leopard light lilac lime magenta maroon mauve merlot midnight mint mocha
multicolor mushroom mustard natural navy nude olive orange peach pewter pink plum purple rainbow red rose royal
rust sand sapphire seashell silver skull slate steel stone stonewash sunflower tan taupe teal tiger turquoise
violet walnut wheat white wine yellow
"""
COLOURS = tuple(_COLOURS.split())

_BEYOND_ASCII = dict.fromkeys(range(128, 256))


@dataclass(frozen=True, slots=True)
class TypeMatch:
    """How far a product is the kind of thing that was wanted."""

    r_type: float
    title_score: float
    query_match: bool
    category_match: bool


@dataclass(frozen=True, slots=True)
class PurchaseScore:
    """A purchase's reward and its parts; a part without anything to match is 1.0 with weight 0."""

    reward: float
    kind: TypeMatch
    r_att: float
    r_option: float
    r_price: float
    w_att: float
    w_option: float
    w_price: float


def score_purchase(
    product: Product,
    goal: Goal,
    nouns: tuple[Sequence[str], Sequence[str]],
    price: float,
    chosen: Sequence[str],
    option_match: OptionMatch = "upstream",
) -> PurchaseScore:
    """Score one purchase.

    Args:
        product: what was bought.
        goal: what was wanted.
        nouns: those of the product's and of the goal's title.
        price: of the product.
        chosen: the option values that were chosen.
        option_match: how a synthetic goal's options are compared; see above.
    """
    kind = match_type(product, goal, nouns)
    attributes = count_attributes(product, goal.attributes)
    options = count_options(chosen, goal.options, option_match)
    cheap = price <= goal.price_upper
    wanted = len(goal.attributes) + len(goal.options) + 1
    return PurchaseScore(
        # In this order of operations, which decides the last digit.
        reward=(attributes + options + cheap) / wanted * kind.r_type,
        kind=kind,
        r_att=attributes / len(goal.attributes) if goal.attributes else 1.0,
        r_option=options / len(goal.options) if goal.options else 1.0,
        r_price=float(cheap),
        w_att=len(goal.attributes) / wanted,
        w_option=len(goal.options) / wanted,
        w_price=1 / wanted,
    )


def match_type(product: Product, goal: Goal, nouns: tuple[Sequence[str], Sequence[str]]) -> TypeMatch:
    """Compare query, categories and the nouns of the titles; too few common nouns override any match."""
    bought, wanted = nouns
    query_match = product.query == goal.query
    category_match = len(_categories(product.product_category) & _categories(goal.product_category)) >= 2
    title_score = len(set(bought) & set(wanted)) / len(wanted) if wanted else 0.2
    r_type = 1.0 if query_match or category_match or title_score > 0.2 else 0.5
    if title_score < 0.1:
        r_type = 0.1 if title_score else 0.0
    return TypeMatch(r_type, title_score, query_match, category_match)


def count_attributes(product: Product, wanted: Sequence[str]) -> int:
    """How many wanted attributes the product has, in its list or in its texts."""
    texts = (product.title.lower(), " ".join(product.bullets).lower(), product.description.lower())
    return sum(
        any(token_set_ratio(own, attribute) > CLOSE_ENOUGH for own in product.attributes)
        or any(attribute in text for text in texts)
        for attribute in wanted
    )


def count_options(chosen: Sequence[str], wanted: GoalOptions, option_match: OptionMatch = "upstream") -> int:
    """How many wanted options some chosen value matches; which option a value was chosen for does not matter."""
    own = [normalize_color(value) for value in chosen]
    if not isinstance(wanted, Mapping):
        targets = [normalize_color(value) for value in wanted]
    elif option_match == "values":
        targets = [normalize_color(value) for value in wanted.values()]
    else:
        targets = [_normalize_pair(pair) for pair in wanted.items()]
    return sum(any(token_set_ratio(value, target) > CLOSE_ENOUGH for value in own) for target in targets)


def normalize_color(text: str) -> str:
    """The first colour of the list that stands in a text, even within a word; the text itself without one."""
    return next((colour for colour in COLOURS if colour in text), text)


def token_set_ratio(first: str, second: str) -> int:
    """Similarity from 0 to 100 of two texts as sets of words (letters of Latin-1 beyond ASCII are left out first)."""
    processed = [default_process(text.translate(_BEYOND_ASCII)) for text in (first, second)]
    return round(fuzz.token_set_ratio(*processed))


def _normalize_pair(pair: tuple[str, str]) -> str:
    return next((colour for colour in COLOURS if colour in pair), str(pair))


def _categories(path: str) -> set[str]:
    return {part.strip() for part in path.split("\u203a")}
