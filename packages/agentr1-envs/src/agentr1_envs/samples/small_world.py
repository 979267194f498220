"""A small invented world of linked articles, and questions that need two of them.

The archipelago of Ostrava Reach has islands, rivers, towns, schools, companies, bridges, books and people; every fact
is stated in one article only, and articles name each other, so a question about the book's author's birthplace cannot
be answered from one article. The world is drawn from a fixed seed; `small_world_corpus.jsonl` beside this file is its
articles, written by `python -m agentr1_envs.samples.small_world`.

Which split a question belongs to is decided by a checksum of its text, so no text occurs in both.
"""

import json
import random
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations
from pathlib import Path

from agentr1_envs.errors import SettingError
from agentr1_envs.tasks import Passage, Task

SPLITS = ("train", "dev")
CORPUS_PATH = Path(__file__).with_name("small_world_corpus.jsonl")
PARAGRAPHS = 10
"""Paragraphs that come with a question: the gold ones and others, shuffled."""

_ISLANDS = ("Anbar", "Corvo Head", "Dunmere", "Elsay", "Farholm", "Grimsel")
_RIVERS = ("Ald", "Brenn", "Cass", "Dorrow", "Eske", "Fenwater", "Gyle", "Hallow", "Isk", "Jorr")
_TOWNS = (
    "Abelport", "Birkwell", "Calder Quay", "Dovestead", "Eastmarch", "Fallowby", "Gannet Bay", "Hollin", "Ivorstone",
    "Jarrowick", "Kestrel Ford", "Larkham", "Millrace", "Northcleave", "Oxley", "Pellard", "Quarry Bank", "Rushmere",
    "Saltgate", "Thornaby Cross", "Ullerton", "Varley", "Westhaven", "Yarrow End",
)  # fmt: skip
_GIVEN = (
    "Alma", "Bruno", "Clara", "Diego", "Edda", "Felix", "Greta", "Henrik", "Ines", "Jonas", "Katya", "Lorenz", "Mira",
    "Nils", "Odile", "Piers", "Rosa", "Stefan", "Tilda", "Viktor",
)  # fmt: skip
_FAMILY = (
    "Ashdown", "Bellweather", "Corrigan", "Dunstan", "Everley", "Fairwind", "Grieve", "Hartnoll", "Ingram", "Jessop",
    "Kerrow", "Lindqvist", "Marlowe", "Norling", "Osterman", "Pryce", "Quillan", "Redfern", "Sallow", "Tremaine",
)  # fmt: skip
_BOOK_FIRST = ("The Silent", "A Distant", "The Last", "Beyond the", "The Amber", "Letters from the")
_BOOK_SECOND = ("Harbour", "Lantern", "Orchard", "Winter", "Causeway")
_TRADES = ("glass", "rope", "clocks", "paper", "tea", "lamps", "boats", "wool")
_PRODUCERS = ("Brothers", "& Daughter", "Works", "Company")
_HONOURS = ("Harbour", "Meadow", "Beacon", "Chapel", "Granite", "Willow", "Summit", "Orchard")

_ARTICLES = {"novelist": "a", "architect": "an", "merchant": "a"}


@dataclass(frozen=True, slots=True)
class _Person:
    name: str
    trade: str
    born_in: str
    born: int
    school: str


@dataclass(frozen=True, slots=True)
class _Made:
    """A book, bridge, company or school: what it is, where, by whom, when."""

    name: str
    town: str
    by: str
    year: int
    about: str


@dataclass(frozen=True, slots=True)
class _World:
    island_of: dict[str, str]
    river_of: dict[str, str]
    founded: dict[str, int]
    people: dict[str, _Person]
    schools: tuple[_Made, ...]
    companies: tuple[_Made, ...]
    bridges: tuple[_Made, ...]
    books: tuple[_Made, ...]


@dataclass(frozen=True, slots=True)
class _Question:
    text: str
    answer: str
    kind: str
    support: tuple[tuple[str, int], ...]


def small_world(split: str) -> tuple[Task, ...]:
    """The questions of a split, each with ten paragraphs, its supporting facts and its gold queries.

    Raises:
        SettingError: an unknown split.
    """
    if split not in SPLITS:
        raise SettingError(f"split={split!r} of the bundled small world is not known; legal: 'train', 'dev'.")
    return _questions_by_split()[split]


def articles() -> tuple[Passage, ...]:
    """All articles, sorted by title."""
    return tuple(sorted(_articles(_world()), key=lambda passage: passage.title))


def write_corpus(path: Path) -> int:
    """Write the articles as ``{"id", "title", "sentences"}`` lines; returns how many."""
    passages = articles()
    with path.open("w", encoding="utf-8") as out:
        for number, passage in enumerate(passages):
            entry = {"id": number, "title": passage.title, "sentences": list(passage.sentences)}
            out.write(json.dumps(entry, ensure_ascii=False) + "\n")
    return len(passages)


@lru_cache(maxsize=1)
def _world() -> _World:
    rng = random.Random("the small world of Ostrava Reach")
    schools = tuple(
        _Made(f"{honour} School", rng.choice(_TOWNS), "", rng.randint(1700, 1780), "") for honour in _HONOURS
    )
    names = [f"{given} {family}" for given in _GIVEN for family in _FAMILY]
    trades = tuple(_ARTICLES)
    people = [
        _Person(name, trades[i % 3], rng.choice(_TOWNS), rng.randint(1795, 1890), rng.choice(schools).name)
        for i, name in enumerate(rng.sample(names, 60))
    ]
    by_trade = {trade: [person for person in people if person.trade == trade] for trade in trades}
    titles = [f"{first} {second}" for first in _BOOK_FIRST for second in _BOOK_SECOND]
    books = [
        _Made(title, rng.choice(_TOWNS), author.name, author.born + rng.randint(24, 60), "")
        for title in rng.sample(titles, 28)
        for author in [rng.choice(by_trade["novelist"])]
    ]
    bridges = [
        _Made(f"{town} Bridge", town, architect.name, architect.born + rng.randint(26, 55), "")
        for town in rng.sample(_TOWNS, 16)
        for architect in [rng.choice(by_trade["architect"])]
    ]
    companies = [
        _Made(
            f"{merchant.name.split()[1]} {rng.choice(_PRODUCERS)}",
            rng.choice(_TOWNS),
            merchant.name,
            merchant.born + rng.randint(22, 50),
            rng.choice(_TRADES),
        )
        for merchant in by_trade["merchant"]
    ]
    unique = {company.name: company for company in companies}
    return _World(
        {town: _ISLANDS[i % len(_ISLANDS)] for i, town in enumerate(_TOWNS)},
        {town: rng.choice(_RIVERS) for town in _TOWNS},
        {town: rng.randint(1100, 1650) for town in _TOWNS},
        {person.name: person for person in people},
        schools,
        tuple(unique.values()),
        tuple(bridges),
        tuple(books),
    )


def _articles(world: _World) -> Iterator[Passage]:
    for town in _TOWNS:
        yield Passage(
            town,
            (
                f"{town} is a town on the island of {world.island_of[town]} in Ostrava Reach.",
                f" It lies on the river {world.river_of[town]}.",
                f" The town was founded in {world.founded[town]}.",
            ),
        )
    for person in world.people.values():
        yield Passage(
            person.name,
            (
                f"{person.name} was {_ARTICLES[person.trade]} {person.trade} from Ostrava Reach.",
                f" {person.name} was born in {person.born} in the town of {person.born_in}.",
                f" As a child, {person.name} attended {person.school}.",
            ),
        )
    for school in world.schools:
        yield Passage(
            school.name,
            (f"{school.name} is a school in {school.town}.", f" It opened in {school.year}."),
        )
    for company in world.companies:
        yield Passage(
            company.name,
            (
                f"{company.name} is a maker of {company.about} with its seat in {company.town}.",
                f" It was founded in {company.year} by the merchant {company.by}.",
            ),
        )
    for bridge in world.bridges:
        yield Passage(
            bridge.name,
            (
                f"{bridge.name} is a stone bridge in the town of {bridge.town}.",
                f" It was designed by the architect {bridge.by} and opened in {bridge.year}.",
            ),
        )
    for book in world.books:
        yield Passage(
            book.name,
            (
                f"{book.name} is a novel by {book.by}.",
                f" It was first printed in {book.year} and is set in {book.town}.",
            ),
        )


def _questions(world: _World) -> Iterator[_Question]:
    for book in world.books:
        author = world.people[book.by]
        first, second = (book.name, 0), (author.name, 1)
        ask = f"of the novel {book.name}"
        yield _bridge(f"In which town was the author {ask} born?", author.born_in, first, second)
        yield _bridge(f"In what year was the author {ask} born?", str(author.born), first, second)
        yield _bridge(f"Which school did the author {ask} attend?", author.school, first, (author.name, 2))
        yield from _about_town(world, f"the town in which the novel {book.name} is set", book.town, (book.name, 1))
    for bridge in world.bridges:
        architect = world.people[bridge.by]
        first, ask = (bridge.name, 1), f"the architect of {bridge.name}"
        yield _bridge(f"In which town was {ask} born?", architect.born_in, first, (architect.name, 1))
        yield _bridge(f"Which school did {ask} attend?", architect.school, first, (architect.name, 2))
    for company in world.companies:
        founder = world.people[company.by]
        first, ask = (company.name, 1), f"the founder of {company.name}"
        yield _bridge(f"In what year was {ask} born?", str(founder.born), first, (founder.name, 1))
        yield _bridge(f"Which school did {ask} attend?", founder.school, first, (founder.name, 2))
        yield from _about_town(world, f"the town where {company.name} has its seat", company.town, (company.name, 0))
    for person in world.people.values():
        yield from _about_town(world, f"the town where {person.name} was born", person.born_in, (person.name, 1))
        school = next(school for school in world.schools if school.name == person.school)
        yield _bridge(
            f"In which town is the school that {person.name} attended?",
            school.town,
            (person.name, 2),
            (school.name, 0),
        )
    yield from _comparisons(world)


def _about_town(world: _World, town_by_name: str, town: str, first: tuple[str, int]) -> Iterator[_Question]:
    yield _bridge(f"On which island is {town_by_name}?", world.island_of[town], first, (town, 0))
    yield _bridge(f"On which river does {town_by_name} lie?", world.river_of[town], first, (town, 1))


def _comparisons(world: _World) -> Iterator[_Question]:
    for one, other in list(combinations(world.companies, 2))[::4]:
        if one.year != other.year:
            earlier = min(one, other, key=lambda company: company.year).name
            yield _Question(
                f"Which company was founded first, {one.name} or {other.name}?",
                earlier,
                "comparison",
                ((one.name, 1), (other.name, 1)),
            )
    for one, other in list(combinations(world.people.values(), 2))[::20]:
        yield _Question(
            f"Did {one.name} and {other.name} attend the same school?",
            "yes" if one.school == other.school else "no",
            "comparison",
            ((one.name, 2), (other.name, 2)),
        )


def _bridge(text: str, answer: str, first: tuple[str, int], second: tuple[str, int]) -> _Question:
    return _Question(text, answer, "bridge", (first, second))


@lru_cache(maxsize=1)
def _questions_by_split() -> dict[str, tuple[Task, ...]]:
    rng = random.Random("paragraphs of the small world")
    passages = {passage.title: passage for passage in articles()}
    tasks: dict[str, list[Task]] = {split: [] for split in SPLITS}
    for question in _questions(_world()):
        split = "dev" if zlib.crc32(question.text.encode()) % 5 == 0 else "train"
        gold = [title for title, _ in question.support]
        others = rng.sample([title for title in passages if title not in gold], PARAGRAPHS - len(gold))
        context = [passages[title] for title in (*gold, *others)]
        rng.shuffle(context)
        tasks[split].append(
            Task(
                task_id=f"world-{split}-{len(tasks[split]):04d}",
                split=split,
                question=question.text,
                answers=(question.answer,),
                plan=tuple(gold),
                supporting=question.support,
                context=tuple(context),
                kind=question.kind,
                level="medium",
            )
        )
    return {split: tuple(found) for split, found in tasks.items()}


if __name__ == "__main__":
    print(f"{write_corpus(CORPUS_PATH)} articles written to {CORPUS_PATH.name}")
