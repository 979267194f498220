"""Text to index terms as Lucene's English analysis does it: words by Unicode's rules, possessive, stop words, Porter.

Words are found by UAX #29: each character is mapped to a letter that stands for its word-break class, and one
expression over these letters cuts the text. Only word-like tokens are kept; an ideograph, a hiragana letter and an
emoji are tokens of their own.
"""

import re
import unicodedata
from functools import lru_cache

from agentr1_envs.webshop.porter import stem

_STOP_WORDS = """
a an and are as at be but by for if in into is it no not of on or such that the their then there these they this
to was will with
"""
STOP_WORDS = frozenset(_STOP_WORDS.split())
LONGEST_TOKEN = 255

_POSSESSIVE = ("'s", "\u2019s", "\uff07s")


class _WordBreakClasses(dict[int, str]):
    """Code point to the letter of its class, found when first asked for.

    A letter, H Hebrew, N digit, K katakana, J ideograph or hiragana, S south-east Asian, E connecting underscore,
    L between letters, M between digits, B between either, Q single quote, D double quote, X extends what stands
    before it, Z joins pictures, P picture, R half of a flag, O anything else.
    """

    def __missing__(self, code: int) -> str:
        found = self[code] = _word_break_class(chr(code))
        return found


_PUNCTUATION = {
    **dict.fromkeys(":\u00b7\u0387\u05f4\u2027\ufe13\ufe55\uff1a", "L"),
    **dict.fromkeys(",;\u037e\u0589\u060c\u060d\u066c\u07f8\u2044\ufe10\ufe14\ufe50\ufe54\uff0c\uff1b", "M"),
    **dict.fromkeys(".\u2018\u2019\u2024\ufe52\uff07\uff0e", "B"),
    **dict.fromkeys("_\u203f\u2040\u2054\ufe33\ufe34\ufe4d\ufe4e\ufe4f\uff3f", "E"),
    "'": "Q",
    '"': "D",
    "\u200b": "O",
    "\u200d": "Z",
}
_BLOCKS = (
    (0x0E00, 0x0EFF, "S"),  # Thai, Lao
    (0x1000, 0x109F, "S"),  # Myanmar
    (0x1780, 0x17FF, "S"),  # Khmer
    (0x3005, 0x3007, "J"),
    (0x3021, 0x3029, "J"),
    (0x3031, 0x3035, "K"),
    (0x3041, 0x3096, "J"),
    (0x309B, 0x309C, "K"),
    (0x309D, 0x309F, "J"),
    (0x30A0, 0x30FA, "K"),
    (0x30FC, 0x30FF, "K"),
    (0x31F0, 0x31FF, "K"),
    (0x3400, 0x4DBF, "J"),
    (0x4E00, 0x9FFF, "J"),
    (0xF900, 0xFAFF, "J"),
    (0xFF66, 0xFF9D, "K"),
    (0xFF9E, 0xFF9F, "X"),
    (0x1F1E6, 0x1F1FF, "R"),
    (0x1F3FB, 0x1F3FF, "X"),  # skin tones
    (0x1F000, 0x1F0FF, "P"),
    (0x1F249, 0x1F53D, "P"),
    (0x1F546, 0x1F64F, "P"),
    (0x1F680, 0x1F6FF, "P"),
    (0x1F90C, 0x1FAFF, "P"),
    (0x20000, 0x3FFFF, "J"),
)
"""Blocks whose class their general category does not tell: (first, last, class)."""

_SINGLE_PICTURES = """
A9 AE 203C 2049 2122 2139 2194 2195 2196 2197 2198 2199 21A9 21AA 231A 231B 2328 2388 23CF 23E9 23EA 23EB 23EC
23ED 23EE 23EF 23F0 23F1 23F2 23F3 23F8 23F9 23FA 24C2 25AA 25AB 25B6 25C0 25FB 25FC 25FD 25FE 2714 2716 271D
2721 2728 2733 2734 2744 2747 274C 274E 2753 2754 2755 2757 2763 2764 2765 2766 2767 2795 2796 2797 27A1 27B0
27BF 2934 2935 2B05 2B06 2B07 2B1B 2B1C 2B50 2B55 3030 303D 3297 3299
"""
_PICTURES = frozenset(
    {
        *(int(code, 16) for code in _SINGLE_PICTURES.split()),
        *range(0x2600, 0x2606),
        *range(0x2607, 0x2613),
        *range(0x2614, 0x2686),
        *range(0x2690, 0x2706),
        *range(0x2708, 0x2713),
    }
)
"""Extended pictographs of the basic plane."""


def _word_break_class(char: str) -> str:
    if char in _PUNCTUATION:
        return _PUNCTUATION[char]
    category, code = unicodedata.category(char), ord(char)
    if code in _PICTURES:
        return "P"
    if category == "Cn":
        return "O"
    for first, last, kind in _BLOCKS:
        if first <= code <= last and (kind != "S" or category[0] in "LM"):
            return kind
    if category in ("Mn", "Mc", "Me", "Cf"):
        return "X"
    if category == "Nd":
        return "N"
    if 0x05D0 <= code <= 0x05F2:
        return "H"
    if category[0] == "L" or category == "Nl" or 0x24B6 <= code <= 0x24E9:
        return "A"
    return "O"


_CLASSES = _WordBreakClasses()

# Each class takes along what extends it; between words of one kind stand single joints or underscores.
_LETTERS = "(?:H X Q X (?! [AH])|H X D X (?= H)|[AH] X)+ (?:(?:(?:[LBQ] X)|(?:E X)+) (?:[AH] X)+)*"
_DIGITS = "(?:N X)+ (?:(?:(?:[MBQ] X)|(?:E X)+) (?:N X)+)*"
_KATAKANA = "(?:K X)+ (?:(?:E X)+ (?:K X)+)*"
_RUN = f"(?:{_KATAKANA}|(?:{_LETTERS}|{_DIGITS})+)"
_WORD = re.compile(
    f"(?:E X)* {_RUN} (?:(?:E X)+ {_RUN})* (?:E X)*|(?:S X)+|J X|R X R X|P X (?:(?<= Z) P X)*".replace("X", "[XZ]*"),
    re.VERBOSE,
)


def tokens(text: str) -> list[str]:
    """The words of a text, in order; one longer than 255 characters is cut into pieces."""
    found: list[str] = []
    for match in _WORD.finditer(text.translate(_CLASSES)):
        start, end = match.span()
        found += [text[at : min(at + LONGEST_TOKEN, end)] for at in range(start, end, LONGEST_TOKEN)]
    return found


def terms(text: str) -> list[str]:
    """The index terms of a text, in order, with repeats."""
    return [term for token in tokens(text) if (term := index_term(token))]


@lru_cache(maxsize=1 << 17)
def index_term(token: str) -> str:
    """The term of one word; empty for a stop word."""
    word = token.lower()
    if word.endswith(_POSSESSIVE):
        word = word[:-2]
    return "" if word in STOP_WORDS else stem(word)
