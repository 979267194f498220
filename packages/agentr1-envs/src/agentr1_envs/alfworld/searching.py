"""Demonstrations of a player who is not told where things lie, and looks for them one place at a time."""

import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from agentr1_envs.alfworld.session import Session

_GO, _OPEN, _IDLE = "go to ", "open ", "inventory"


@dataclass(frozen=True, slots=True)
class Manner:
    """How a player plays who is not told everything, and errs."""

    searching: float = 0.0
    """Probability that it looks somewhere at random before a thing that it takes or uses, and after each look again."""
    slips: float = 0.0
    """Probability of a command that is not possible, before each command and after each slip again."""
    idles: float = 0.0
    """Probability of a look at what it holds, which helps nothing, before each command and after each such look."""


def played(session: Session, walkthrough: Sequence[str], manner: Manner, chance: random.Random) -> list[str]:
    """The walkthrough as such a player plays it.

    It looks at places drawn at random, and opens what is closed, until the draw hits a place with such a thing, or its
    patience ends; then it goes where the walkthrough goes. It does not remember where it has been.

    Args:
        session: the game as it stands; it is left as it is.
        walkthrough: commands that win from here.
        manner: how the player plays.
        chance: draws places and slips.
    """
    game, commands = session.copy(), list[str]()

    def say(command: str) -> None:
        while manner.idles and chance.random() < manner.idles:
            commands.append(_IDLE)
        while chance.random() < manner.slips:
            commands.append(_slip(game, walkthrough, chance))
        game.step(command)
        commands.append(command)

    for number, command in enumerate(walkthrough):
        wanted = _wanted(walkthrough[number:])
        if wanted:
            for place in _detours(game, command, wanted, manner.searching, chance):
                for detour in (_GO + place, _OPEN + place):
                    if detour in game.admissible:
                        say(detour)
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


def _shows(session: Session, place: str, wanted: str) -> bool:
    """Whether a visit to the place would make a command possible that begins so."""
    visit = session.copy()
    visit.step(_GO + place)
    if _OPEN + place in visit.admissible:
        visit.step(_OPEN + place)
    return any(command.startswith(wanted) for command in visit.admissible)
