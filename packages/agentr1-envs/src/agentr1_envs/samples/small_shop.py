"""A small shop of invented products, each with an instruction that asks for it; no text is taken from any real shop.

A product is a line of the table: a title whose nouns carry a star, its place in the shop, its price or range, what it
is like (what an instruction asks for comes first), and its options. Products of a kind share words, so a search for
one finds its neighbours too.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any

_ASKED = 2
"""How many of a product's attributes its instruction asks for."""


@dataclass(frozen=True, slots=True)
class _Shelf:
    """Products of one kind."""

    category: str
    path: str
    query: str
    options: dict[str, tuple[str, ...]]
    lines: tuple[tuple[str, tuple[float, ...], tuple[str, ...]], ...]
    """(title with starred nouns, price or range, attributes)."""


_SIZES = ("small", "medium", "large")
_SHELVES = (
    _Shelf(
        "fashion", "Clothing \u203a Tops \u203a Shirts", "shirts",
        {"color": ("white", "navy", "olive"), "size": _SIZES},
        (
            ("Harrow Linen* Shirt* with Long Sleeves*", (34.5,), ("long sleeve", "pure linen", "loose fit")),
            ("Harrow Cotton* Shirt* with Short Sleeves*", (21.0, 27.5), ("short sleeve", "machine wash", "slim fit")),
            ("Dunlin Flannel* Shirt* for Winter*", (39.9,), ("brushed cotton", "button closure", "long sleeve")),
            ("Dunlin Polo* Shirt* for Golf*", (25.25,), ("moisture wicking", "short sleeve", "quick drying")),
        ),
    ),
    _Shelf(
        "fashion", "Clothing \u203a Shoes \u203a Boots", "boots",
        {"color": ("black", "brown"), "size": ("8", "9", "10")},
        (
            ("Pellam Leather* Boots* with Rubber* Soles*", (89.0,), ("rubber sole", "genuine leather", "non slip")),
            ("Pellam Hiking* Boots* for Wet Trails*", (64.0, 79.0), ("water resistant", "arch support", "rubber sole")),
            ("Corby Suede* Ankle* Boots*", (57.5,), ("side zipper", "soft lining", "low heel")),
        ),
    ),
    _Shelf(
        "fashion", "Clothing \u203a Accessories \u203a Hats", "hats",
        {"color": ("gray", "teal", "burgundy")},
        (
            ("Corby Wool* Beanie* with Pompom*", (12.0,), ("hand wash", "soft wool", "one size")),
            ("Fenner Straw* Hat* with Broad Brim*", (18.75,), ("sun protection", "adjustable band", "light weight")),
            ("Fenner Baseball* Cap*", (9.5, 14.0), ("adjustable strap", "cotton twill", "machine wash")),
        ),
    ),
    _Shelf(
        "garden", "Home \u203a Furniture \u203a Bookcases", "bookcases",
        {"finish": ("walnut", "espresso", "white"), "height": ("three shelves", "five shelves")},
        (
            ("Ostrey Ladder* Bookcase* of Solid Wood*", (118.0,), ("solid wood", "wall mounted", "open back")),
            ("Ostrey Corner* Bookcase* for Living* Rooms*", (96.4,), ("space saving", "easy assemble", "living room")),
            ("Tarn Cube* Bookcase* with Doors*", (74.0, 99.0), ("storage space", "easy clean", "engineered wood")),
        ),
    ),
    _Shelf(
        "garden", "Home \u203a Furniture \u203a Lamps", "table lamps",
        {"shade": ("ivory", "charcoal")},
        (
            ("Tarn Ceramic* Table* Lamp*", (42.0,), ("ceramic base", "touch control", "warm glow")),
            ("Brisling Brass* Reading* Lamp*", (51.3,), ("swing arm", "brass finish", "energy efficient")),
            ("Brisling Clip* Lamp* for Desks*", (16.8,), ("battery powered", "eye friendly", "space saving")),
            ("Quill Glass* Bedside* Lamp*", (29.0, 36.0), ("frosted glass", "touch control", "energy efficient")),
        ),
    ),
    _Shelf(
        "garden", "Home \u203a Bedding \u203a Blankets", "blankets",
        {"color": ("lavender", "mint", "cream"), "size": ("twin", "queen")},
        (
            ("Quill Fleece* Blanket* for Beds*", (23.6,), ("super soft", "machine wash", "double sided")),
            ("Sorrel Wool* Throw* Blanket*", (61.0,), ("pure wool", "hand wash", "fringed edge")),
            ("Sorrel Weighted Blanket* with Cover*", (48.0, 66.0), ("removable cover", "glass beads", "cool touch")),
        ),
    ),
    _Shelf(
        "electronics", "Electronics \u203a Audio \u203a Headphones", "headphones",
        {"color": ("black", "silver")},
        (
            ("Vireo Headphones* with Microphone*", (45.0,), ("noise cancelling", "wireless bluetooth", "long battery")),
            ("Vireo Earbuds* for Running*", (28.9,), ("sweat proof", "wireless bluetooth", "ear hooks")),
            ("Kestrel Studio* Headphones*", (132.0,), ("stereo sound", "detachable cable", "padded headband")),
        ),
    ),
    _Shelf(
        "electronics", "Electronics \u203a Computers \u203a Keyboards", "keyboards",
        {"layout": ("compact", "full"), "switch": ("quiet", "clicky")},
        (
            ("Kestrel Mechanical Keyboard* with Backlight*", (83.0,), ("mechanical keys", "plug play", "back lit")),
            ("Mallard Wireless Keyboard* for Tablets*", (31.7, 38.0), ("usb charging", "light weight", "long battery")),
        ),
    ),
    _Shelf(
        "electronics", "Electronics \u203a Power \u203a Chargers", "chargers",
        {"length": ("3 feet", "6 feet", "10 feet")},
        (
            ("Mallard Wall* Charger* with Cable*", (13.4,), ("fast charging", "over heating protection", "usb port")),
            ("Plover Car* Charger* for Phones*", (11.2,), ("dual port", "fast charging", "compact body")),
            ("Plover Solar* Charger* for Camping*", (37.0, 44.5), ("high capacity", "water resistant", "hard case")),
        ),
    ),
    _Shelf(
        "grocery", "Grocery \u203a Drinks \u203a Tea", "tea",
        {"flavor": ("ginger", "jasmine", "hibiscus"), "pack": ("pack of 1", "pack of 4")},
        (
            ("Wren Herbal Tea* in Bags*", (7.9,), ("caffeine free", "usda organic", "non gmo")),
            ("Wren Loose Leaf* Tea* in a Tin*", (14.3,), ("resealable tin", "gluten free", "rich aroma")),
            ("Siskin Iced Tea* Powder*", (6.5, 9.9), ("sugar free", "low calorie", "easy mix")),
        ),
    ),
    _Shelf(
        "grocery", "Grocery \u203a Snacks \u203a Nuts", "nuts",
        {"size": ("8 ounce", "16 ounce")},
        (
            ("Siskin Roasted Almonds* with Salt*", (10.6,), ("gluten free", "high protein", "dry roasted")),
            ("Linnet Mixed Nuts* with Berries*", (12.9, 17.5), ("trans fat free", "resealable bag", "high fiber")),
            ("Linnet Cashews* with Honey*", (15.0,), ("kosher certified", "non gmo", "dry roasted")),
        ),
    ),
    _Shelf(
        "beauty", "Beauty \u203a Skin Care \u203a Creams", "face creams",
        {"scent": ("vanilla", "unscented"), "size": ("50 ml", "100 ml")},
        (
            ("Avocet Face* Cream* for Dry Skin*", (19.0,), ("hyaluronic acid", "fragrance free", "dry skin")),
            ("Avocet Night* Cream* with Shea* Butter*", (26.0, 33.0), ("cruelty free", "anti aging", "shea butter")),
            ("Godwit Sun* Cream* for Children*", (15.8,), ("sensitive skin", "water resistant", "mineral filter")),
        ),
    ),
    _Shelf(
        "beauty", "Beauty \u203a Hair Care \u203a Shampoos", "shampoos",
        {"size": ("200 ml", "400 ml", "travel size")},
        (
            ("Godwit Shampoo* with Argan* Oil*", (11.9,), ("sulfate free", "argan oil", "damaged hair")),
            ("Merlin Shampoo* Bar* without Plastic*", (8.7,), ("plant based", "paraben free", "hair growth")),
            ("Merlin Dandruff* Shampoo*", (9.9, 13.5), ("tea tree", "dry scalp", "sulfate free")),
        ),
    ),
)  # fmt: skip


@lru_cache(maxsize=1)
def _lines() -> tuple[tuple[_Shelf, str, tuple[float, ...], tuple[str, ...]], ...]:
    return tuple((shelf, *line) for shelf in _SHELVES for line in shelf.lines)


def products() -> list[dict[str, Any]]:
    """The products as rows of a catalogue file."""
    return [_product(number, *line) for number, line in enumerate(_lines())]


def _product(
    number: int, shelf: _Shelf, marked: str, pricing: tuple[float, ...], attributes: tuple[str, ...]
) -> dict[str, Any]:
    title = marked.replace("*", "")
    nouns = [word.strip("*").lower() for word in marked.split() if word.endswith("*")]
    kind = shelf.query
    traits = ", ".join(attributes)
    return {
        "asin": f"S{number:04d}SHOP",
        "name": title,
        "description": f"{title}, one of our {kind}. What our customers like about it: {traits}.",
        "bullets": [f"Known for: {traits}.", *(f"{attribute.capitalize()}." for attribute in attributes)],
        "pricing": list(pricing),
        "category": shelf.category,
        "product_category": shelf.path,
        "query": kind,
        "options": {name: list(values) for name, values in shelf.options.items()},
        "attributes": list(attributes),
        "instruction": f"Please find {kind} with these traits: {' and '.join(attributes[:_ASKED])},",
        "instruction_attributes": list(attributes[:_ASKED]),
        "human_instructions": [
            {
                "instruction": f"i want to buy {kind} that have {attributes[0]}, any kind will do.",
                "instruction_attributes": [attributes[0]],
                "instruction_options": [],
            }
        ],
        "title_nouns": nouns,
    }
