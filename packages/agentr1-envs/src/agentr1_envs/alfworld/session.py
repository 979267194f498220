"""The native engine: one game being played. State in plain data, no thread, no file, no clock."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any, cast

from agentr1_envs.alfworld.facts import Facts
from agentr1_envs.alfworld.game import Game, GroundAction
from agentr1_envs.alfworld.grammar import Rule
from agentr1_envs.errors import SettingError

_INTRO = (Rule("intro"),)

NOTHING = "Nothing happens."
"""What the game answers to a command that is not admissible."""


class Session:
    """Plays a game: a command in, a text out.

    The admissible actions are kept by action of the domain; after a step only the actions that read a predicate that
    changed are joined with the facts again.
    """

    def __init__(self, game: Game) -> None:
        """Start at the beginning."""
        self.game = game
        self.won = False
        self._facts = game.start
        self._actions: list[list[GroundAction]] = []
        self._by_command: dict[str, GroundAction] = {}
        self.admissible: tuple[str, ...] = ()
        """The admissible commands in alphabetical order, each once."""
        self._take(game.start.copy())

    def reset(self) -> str:
        """Back to the beginning; the text that opens the game."""
        self._take(self.game.start.copy())
        return self.intro()

    def intro(self) -> str:
        """The text that opens the game, as it would be said now."""
        wording = self.game.wording
        return wording.text(_INTRO, wording.scope({}), self._facts, self.game.file.goal)

    def step(self, command: str) -> str:
        """Play a command; one that is not admissible changes nothing."""
        action = self._by_command.get(command.strip())
        if action is None:
            return NOTHING
        self.apply(action)
        schema = self.game.rules.schemas[action.number]
        pairs = zip(schema.action.parameters, action.arguments, strict=True)
        scope = self.game.wording.scope({(name[1:], kind): value for (name, kind), value in pairs})
        return self.game.wording.text(schema.text.feedback, scope, self._facts, self.game.file.goal)

    @property
    def actions(self) -> list[GroundAction]:
        """The ground actions that are possible now."""
        return [action for actions in self._actions for action in actions]

    @property
    def facts(self) -> Facts:
        """What is true now; to be read only."""
        return self._facts

    def apply(self, action: GroundAction) -> None:
        """Do a possible action."""
        changes = self.game.changes(action, self._facts)
        changed = {predicate for predicate, terms, true in changes if self._facts.has(predicate, terms) != true}
        for predicate, terms, true in changes:
            self._facts.make(predicate, terms, true)
        self._update(changed)

    def get_state(self) -> dict[str, Any]:
        """The state as JSON-ready data."""
        return {"facts": [list(fact) for fact in self._facts.own()]}

    def set_state(self, state: dict[str, Any]) -> None:
        """Take up a state of this game.

        Raises:
            SettingError: it is no state that `get_state` gave.
        """
        facts: Any = state.get("facts")
        if not isinstance(facts, list) or not all(_is_fact(fact) for fact in cast("list[Any]", facts)):
            raise SettingError(f"state={state!r:.80}: needs {{'facts': [[predicate, argument, ...], ...]}}.")
        self._take(self.game.start.replaced(tuple(fact) for fact in cast("list[list[str]]", facts)))

    def copy(self) -> "Session":
        """A session of its own at the same point."""
        return deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> "Session":
        twin = Session.__new__(Session)
        twin.game, twin.won, twin.admissible = self.game, self.won, self.admissible
        twin._facts = self._facts.copy()
        twin._actions = list(self._actions)
        twin._by_command = self._by_command
        return twin

    def _take(self, facts: Facts) -> None:
        self._facts = facts
        self._actions = [[] for _ in self.game.rules.schemas]
        self._update(None)

    def _update(self, changed: set[str] | None) -> None:
        """Bring actions and outcome up to date after these predicates changed; None stands for all."""
        stale = [
            number
            for number, schema in enumerate(self.game.rules.schemas)
            if changed is None or not schema.reads.isdisjoint(changed)
        ]
        for number in stale:
            self._actions[number] = self.game.applicable(number, self._facts)
        if stale:
            by_command: dict[str, GroundAction] = {}
            for action in self.actions:
                by_command.setdefault(action.command, action)
            self._by_command = by_command
            self.admissible = tuple(sorted(by_command))
        if changed is None or not self.game.goal_reads.isdisjoint(changed):
            self.won = any(True for solve in self.game.goal for _ in solve(self._facts, {}))


def _is_fact(value: Any) -> bool:
    return isinstance(value, Sequence) and all(isinstance(part, str) for part in cast("Sequence[Any]", value))
