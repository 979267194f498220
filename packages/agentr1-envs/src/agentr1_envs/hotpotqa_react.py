"""HotpotQA in the ReAct style (Yao et al. 2023): search, lookup, finish and think, written in square brackets.

The articles come from a local corpus, never from live Wikipedia. The cursor of `lookup` belongs to the episode.
"""

import re
from collections.abc import Callable, Mapping
from typing import ClassVar

from agentr1_envs.agent_env import AgentEnv, InfoValue, ObservationKind, Turn
from agentr1_envs.article_cursor import ArticleCursor
from agentr1_envs.corpus import Corpus
from agentr1_envs.errors import require_choice
from agentr1_envs.prompts import check_style, choose_system
from agentr1_envs.responses import without_thinking
from agentr1_envs.scoring import TEXT_REWARDS, TEXT_SCORES, TextReward, score_text
from agentr1_envs.tasks import Task, TaskSet

MAX_STEPS = 7
FIRST_SENTENCES = 5

_ACTION = re.compile(r"(search|lookup|finish|think)\[(.*)\]", re.IGNORECASE | re.DOTALL)
_LABEL = re.compile(r"^\s*action\s*\d*\s*:[ \t]*", re.IGNORECASE | re.MULTILINE)
_FULL = """You answer a question by looking up articles. Write one thought and one action a response. The actions are:
search[title] gives the first sentences of the article with this title, or similar titles;
lookup[words] gives the next sentence with these words in the article found last;
think[text] notes a thought;
finish[answer] answers the question.
You have at most {max_steps} responses. End each with one action, as in:
Thought: I need the article on the bridge.
Action: search[Oxley Bridge]"""
_SHORT = "Use search[title], lookup[words] and finish[answer]."


class HotpotQAReactEnv(AgentEnv):
    """Questions in the ReAct style; see `agentr1_envs.hotpotqa.hotpotqa`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = {
        **TEXT_SCORES,
        "prediction": "",
        "hops_found": 0,
        "invalid_actions": 0,
    }

    def __init__(
        self,
        tasks: Callable[[], TaskSet],
        corpus: Callable[[], Corpus],
        reward: TextReward,
        *,
        max_steps: int = MAX_STEPS,
        system: str = "full",
        observation: ObservationKind = "text",
        history: int | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__(tasks, max_steps=max_steps, observation=observation, history=history, render_mode=render_mode)
        require_choice("reward", reward, TEXT_REWARDS)
        self._open_corpus, self._system = corpus, check_style(system)
        self._reward: TextReward = reward
        self._corpus: Corpus | None = None
        self._cursor = ArticleCursor()
        self._hops: set[str] = set()
        self._invalid = 0

    @property
    def system_prompt(self) -> str:
        """Text for the system role."""
        return choose_system(self._system, _FULL.format(max_steps=self.max_steps), _SHORT)

    @property
    def stop(self) -> list[str]:
        """An observation the model invents."""
        return ["\nObservation"]

    def demonstration(self) -> list[str]:
        """A search for each gold article, then the answer."""
        searches = [f"search[{title}]" for title in self.task.supporting_titles]
        return [*searches[: self.max_steps - 1], f"finish[{self.task.answers[0]}]"]

    def begin(self, task: Task) -> str:
        """Forget the page and the cursor of the last episode; the task opens with its question."""
        self._corpus = self._open_corpus()
        self._cursor.turn_to(())
        self._hops, self._invalid = set(), 0
        return f"Question: {task.question}"

    def advance(self, action: str) -> Turn:
        """Do the action of a response."""
        verb, argument = read_action(action)
        if verb == "finish":
            score = score_text(self.task, argument, self._reward)
            info: dict[str, InfoValue] = {**score.info, "prediction": argument}
            return Turn("Episode finished.", {"task": score.reward}, "answer", score.success, info)
        if verb == "search":
            feedback = self._search(argument)
        elif verb == "lookup":
            feedback = self._cursor.look_up(argument)
        elif verb == "think":
            feedback = "Nice thought."
        else:
            self._invalid += 1
            feedback = f"Invalid action: {argument[:200]}"
        return Turn(feedback, info={"hops_found": len(self._hops), "invalid_actions": self._invalid})

    def _search(self, entity: str) -> str:
        assert self._corpus is not None, "begin() opens the corpus"
        page = self._corpus.find(entity)
        if page is None:
            return f"Could not find {entity}. Similar: {self._corpus.similar(entity)}"
        self._cursor.turn_to(page.sentences)
        if page.title in self.task.supporting_titles:
            self._hops.add(page.title)
        return " ".join(sentence.strip() for sentence in page.sentences[:FIRST_SENTENCES])


def read_action(response: str) -> tuple[str, str]:
    """The verb and the argument of a response: what stands behind the first "Action:", or else its last line.

    An unreadable action comes as ``("", text)``. The whole response counts too, so an argument may hold line breaks.
    """
    text = without_thinking(response)
    label = _LABEL.search(text)
    behind = text[label.end() :] if label else text
    candidates = [behind.split("\n", 1)[0], behind] if label else [text, text.rsplit("\n", 1)[-1]]
    for candidate in candidates:
        if found := _ACTION.fullmatch(candidate.strip()):
            return found.group(1).lower(), found.group(2).strip()
    return "", candidates[0].strip()
