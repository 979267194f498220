"""Demonstrations of a player who is not told where things lie, and looks for them one place at a time."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentr1_envs.alfworld.planner import find_plan
from agentr1_envs.alfworld.session import Session

_GO, _OPEN = "go to ", "open "

ORDERS = ("random", "listed")

_PLAN_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Manner:
    """How a player plays who is not told everything, and errs."""

    searching: float = 0.0
    """Probability that it looks somewhere before a thing that it takes or uses, and after each look again."""
    slips: float = 0.0
    """Probability of a command that is not possible, before each command and after each slip again."""
    order: str = "random"
    """Where it looks next: "random", or "listed", in the order in which a game begins by naming its furniture."""


def played(session: Session, walkthrough: Sequence[str], manner: Manner, chance: random.Random) -> list[str]:
    """The walkthrough as such a player plays it.

    At random, it looks at places, and opens what is closed, until the draw hits a place with such a thing, or its
    patience ends; then it goes where the walkthrough goes. It does not remember where it has been. As listed, it goes
    on through the furniture from where it stands, in the order in which a game begins by naming it, and takes the first
    such thing that it sees.

    Args:
        session: the game as it stands; it is left as it is.
        walkthrough: commands that win from here.
        manner: how the player plays.
        chance: draws places and slips.
    """
    game, commands, rest = session.copy(), list[str](), list(walkthrough)

    def say(command: str) -> None:
        while chance.random() < manner.slips:
            commands.append(_slip(game, walkthrough, chance))
        game.step(command)
        commands.append(command)

    def look(place: str) -> None:
        for detour in (_GO + place, _OPEN + place):
            if detour in game.admissible:
                say(detour)

    while rest:
        wanted = _wanted(rest)
        if wanted and manner.order == "listed":
            for place in _round(game, commands, manner.searching, chance):
                look(place)
                if any(command.startswith(wanted) for command in game.admissible):
                    rest = _taking(game, rest, wanted)
                    break
        elif wanted:
            for place in _detours(game, rest[0], wanted, manner.searching, chance):
                look(place)
        command = rest.pop(0)
        if command in game.admissible:  # it has been opened on a detour, or it is where the player stands
            say(command)
    return commands


def _slip(session: Session, walkthrough: Sequence[str], chance: random.Random) -> str:
    """A command of the walkthrough or of this moment, with other numbers or in the wrong place: impossible now."""
    known = [*session.admissible, *walkthrough]
    while True:
        command = re.sub(r"\d+", lambda _: str(chance.randint(1, 4)), chance.choice(known))
        if command not in session.admissible:
            return command


def _wanted(commands: Sequence[str]) -> str:
    """How the command begins for which the first one goes somewhere, such as "take mug "; "" where it finds nothing."""
    if not commands[0].startswith(_GO):
        return ""
    found = next((command for command in commands[1:] if not command.startswith(_OPEN)), "")
    verb, _, rest = found.partition(" ")
    return f"{verb} {rest.partition(' ')[0]} " if verb in ("take", "use") else ""


def _detours(session: Session, command: str, wanted: str, patience: float, chance: random.Random) -> Iterator[str]:
    """Yield places without what is wanted, until the draw hits one with it or patience ends."""
    places = [said.removeprefix(_GO) for said in session.admissible if said.startswith(_GO)]
    while places and chance.random() < patience:
        place = chance.choice(places)
        if _GO + place == command or _shows(session, place, wanted):
            return
        yield place


def _round(session: Session, commands: Sequence[str], patience: float, chance: random.Random) -> Iterator[str]:
    """Yield every place once, on from the last one gone to, until patience ends."""
    names = {said.removeprefix(_GO) for said in session.admissible if said.startswith(_GO)}
    here = next((said.removeprefix(_GO) for said in reversed(commands) if said.startswith(_GO)), "")
    places = sorted({*names, here} - {""}, key=_listed)
    begin = places.index(here) + 1 if here else 0
    for place in places[begin:] + places[: max(begin - 1, 0)]:
        if chance.random() >= patience:
            return
        yield place


def _listed(place: str) -> tuple[str, int]:
    """Sorts furniture as games name it: "desk 2" after "bed 1" and before "desk 1"."""
    kind, _, number = place.rpartition(" ")
    return kind, -int(number)


def _taking(session: Session, rest: list[str], wanted: str) -> list[str]:
    """What is left to do once such a thing is seen here: as the walkthrough has it, or planned anew with this one."""
    index = next(index for index, command in enumerate(rest) if command.startswith(wanted))
    if rest[index] in session.admissible:
        return rest[index:]
    found = next(command for command in session.admissible if command.startswith(wanted))
    after = session.copy()
    after.step(found)
    plan = find_plan(after, _PLAN_SECONDS)
    return rest if plan is None else [found, *plan]


def _shows(session: Session, place: str, wanted: str) -> bool:
    """Whether a visit to the place would make a command possible that begins so."""
    visit = session.copy()
    visit.step(_GO + place)
    if _OPEN + place in visit.admissible:
        visit.step(_OPEN + place)
    return any(command.startswith(wanted) for command in visit.admissible)
