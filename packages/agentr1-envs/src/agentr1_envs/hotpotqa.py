"""HotpotQA: questions that need two articles, with a search tool, in the ReAct style, or with paragraphs at hand."""

import os
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar

from agentr1_envs.agent_env import ANSWERED, AgentEnv, InfoValue, ObservationKind, Turn
from agentr1_envs.article_cursor import ArticleCursor
from agentr1_envs.corpus import Corpus, check_corpus_path, open_corpus
from agentr1_envs.datasets import HOTPOTQA
from agentr1_envs.errors import DataNotFoundError, SettingError, refuse_unknown, require_choice
from agentr1_envs.hotpotqa_data import react_subset
from agentr1_envs.hotpotqa_react import HotpotQAReactEnv
from agentr1_envs.loader import OnBadRow, find_file, load_tasks
from agentr1_envs.prompts import answer_system, check_style
from agentr1_envs.responses import answer_in_tag, facts_in_tag, without_thinking
from agentr1_envs.scoring import (
    SUPPORT_SCORES,
    TEXT_REWARDS,
    TEXT_SCORES,
    Score,
    TextReward,
    score_support,
    score_text,
)
from agentr1_envs.signatures import EPISODE, takes
from agentr1_envs.tasks import Passage, Task, TaskSet
from agentr1_envs.tool_env import CallError, EnvTool, ToolCall, ToolEnv, ToolResult, ToolSpec
from agentr1_envs.tool_settings import ToolSettings

MODES = ("tools", "react", "context")
SUBSETS = ("all", "react500")

TOOL_TIMEOUT = 10.0
"""Seconds a search of a local corpus may take by default. It takes milliseconds, so this only fires when something is
broken; the tool's own 0.3 s would also fire on a busy machine, and the same seed would give another episode."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_ROLE = "You answer a question that needs facts from more than one article."
_FACTS = (
    "Before the answer write the sentences that support it between <facts> and </facts>: a line for each article, its "
    "title and then their numbers in brackets, as in: Oxley Bridge [0, 2]"
)


@takes(ToolSettings, retriever=None, max_results=5, lookup=False, facts=False, tool_timeout=TOOL_TIMEOUT, **EPISODE)
def hotpotqa(
    mode: str = "tools",
    *,
    split: str = "train",
    data: str | os.PathLike[str] | None = None,
    corpus: str | os.PathLike[str] | None = None,
    subset: str = "all",
    reward: TextReward = "em",
    on_bad_row: OnBadRow = "refuse",
    **settings: Any,
) -> AgentEnv:
    """Questions whose answer needs two articles, with a search tool, in the ReAct style, or with the articles at hand.

    ## Description
    Without data of your own the questions are about a small invented world that comes with the package: 154 linked
    articles, 450 questions to train on and 102 to test on. ``agentr1-envs download hotpotqa`` fetches the official
    ones. There are three modes:

    * "tools": a `ToolEnv` with ``wiki_search(query)`` and, by `lookup`, ``wiki_lookup(keyword)``.
    * "react": ``search[...]``, ``lookup[...]``, ``finish[...]`` and ``think[...]``, written in square brackets.
    * "context": one response, with the question's paragraphs (ten, as a rule) before it.

    2WikiMultihopQA, MuSiQue and Bamboogle are played by giving their file or folder as `data`. MuSiQue brings its
    paragraphs with the questions (``agentr1-envs prepare hotpotqa`` makes a corpus of them); Bamboogle needs `corpus`.

    ## Action Space
    `Text`: the model's whole response: calls in `format`, and the answer in ``<answer>``; in "react" an action such as
    ``search[Ada Lovelace]``, alone or behind "Action:".

    ## Observation Space
    `Text`: the question (in "context" behind its paragraphs), then what the tools or actions gave; with
    ``observation="messages"`` `Messages`: the whole conversation, of which the last `history` steps are kept.

    ## Rewards
    Exact match with a gold answer (`reward="em"`) or F1 (`reward="f1"`), by HotpotQA's rules, in ``reward/task``. In
    "tools" ``reward/env`` is what calls and hops pay and ``reward/format`` what form pays or costs; both are 0 unless
    `ToolSettings` sets them. The step's reward is the sum.

    ## Starting State
    A question of the split, drawn by the seed or named by ``options={"task_id": ...}``.

    ## Episode End
    Terminated by the answer (`end_reason` "answer"; in "react" by ``finish[...]``), in "tools" also by `max_invalid`
    steps in a row with invalid calls only ("max_invalid"); truncated after `max_steps` ("max_steps").

    ## Info
    * `success` (bool): whether the answer matched exactly.
    * `task_id` (str): the question.
    * `end_reason` (str): why the episode is over; empty while it goes on.
    * `steps` (int): responses so far.
    * `reward/task` (float): what the answer paid; in "tools" also `reward/env`, `reward/format` (float).
    * `em`, `f1`, `precision`, `recall` (float): the answer's scores; 0 until there is one.
    * `prediction` (str): the answer as it was read.
    * `hops_found` (int): in "tools" and "react": gold articles found so far.
    * `invalid_actions` (int): in "react": responses so far without an action.
    * `tool_calls`, `tool_errors` (int): in "tools": calls so far, and how many of them failed.
    * `injected_errors` (int): how many of those failed on purpose, by `inject_errors`.
    * `invalid_calls`, `invalid_steps` (int): calls that were written wrongly, and steps that had no other call.
    * `error_codes` (tuple of str): what went wrong in the last response.
    * `sp_em`, `sp_f1`, `sp_precision`, `sp_recall` (float): in "context" with `facts`: scores of the supporting facts.
    * `joint_em`, `joint_f1`, `joint_precision`, `joint_recall` (float): of facts and answer together.

    ## Arguments
    * `mode`: "tools", "react" or "context".
    * `split`: "train", "dev", or "test" for data whose test questions have answers (Bamboogle).
    * `data`: a file, a folder, or "bundled"; None looks in AGENTR1_DATA, then the user's data folder, then takes the
      bundled questions.
    * `corpus`: a jsonl file of ``{"title", "sentences"}`` lines; None takes the ``corpus.jsonl`` beside the data.
    * `subset`: "all", or "react500" for ReAct's 500 dev questions.
    * `reward`: "em" or "f1". `on_bad_row`: "refuse" a file with rows that cannot be read, or "skip" them.
    * `retriever`: in "tools": the address of an HTTP retriever, instead of a corpus; `tool_timeout` is then None unless
      it is given.
    * `max_results`: in "tools": articles a search gives at most.
    * `lookup`: in "tools": true adds `wiki_lookup`: the next sentence with some words in the article found last. For
      ReAct's ``wiki_search[...]``, ``wiki_lookup[...]`` and ``finish[...]`` set ``format="react"`` too.
    * `facts`: in "context": true numbers the sentences and asks for those that support the answer, between ``<facts>``
      and ``</facts>``.
    * `observation`: "text" (what is new) or "messages" (the whole conversation).
    * `history`: in "tools" and "react", with "messages": how many past steps stay in the conversation; None keeps all.
    * `render_mode`: None, or "ansi": `render` returns the transcript.
    * `format`, `system`, `tools_in_template`, `max_steps`, `max_calls_per_step`, `tool_timeout`,
      `tool_seconds_per_episode`, `max_invalid`, `max_result_chars`, `process_reward`, `process_reward_range`,
      `progressive`, `per_hop`, `format_reward`, `invalid_penalty`, `inject_errors`: fields of `ToolSettings`, for
      "tools". All modes take `system`; "react" also `max_steps`, which is 7 there.

    ## Example
    ```python
    import gymnasium

    env = gymnasium.make("agentr1_envs:agentr1/HotpotQA-v0", mode="react", data="bundled", split="dev")
    question, info = env.reset(seed=0)
    print(question)
    for response in env.get_wrapper_attr("demonstration")():  # search[...], search[...], finish[...]
        observation, reward, terminated, truncated, info = env.step(response)
    assert terminated and info["em"] == 1.0 and info["hops_found"] == 2
    ```

    ## References
    * Yang et al.: HotpotQA: A Dataset for Diverse, Explainable Multi-hop Question Answering. EMNLP 2018.
      [arXiv:1809.09600](https://arxiv.org/abs/1809.09600)
    * Yao et al.: ReAct: Synergizing Reasoning and Acting in Language Models. ICLR 2023.
      [arXiv:2210.03629](https://arxiv.org/abs/2210.03629)
    * 2WikiMultihopQA: [arXiv:2011.01060](https://arxiv.org/abs/2011.01060). MuSiQue:
      [arXiv:2108.00573](https://arxiv.org/abs/2108.00573). Bamboogle:
      [arXiv:2210.03350](https://arxiv.org/abs/2210.03350)

    ## Version History
    v0: first version.
    """
    require_choice("mode", mode, MODES)
    tasks = _Source(split, data, corpus, subset, on_bad_row)
    if mode == "tools":
        return HotpotQAToolEnv(tasks, reward, **settings)
    if mode == "react":
        refuse_unknown("mode='react'", settings, ("max_steps", "system", "observation", "history", "render_mode"))
        return HotpotQAReactEnv(tasks, tasks.open_corpus, reward, **settings)
    refuse_unknown("mode='context'", settings, ("system", "facts", "observation", "render_mode"))
    made = HotpotQAFactsEnv if settings.pop("facts", False) else HotpotQAContextEnv
    return made(tasks, reward, **settings)


class HotpotQAToolEnv(ToolEnv):
    """Questions with a search tool; see `hotpotqa`."""

    role = f"{_ROLE} Search for the articles one after another, then answer with a name, a number, yes or no."

    def __init__(
        self,
        tasks: "_Source",
        reward: TextReward,
        *,
        retriever: str | None = None,
        max_results: int = 5,
        lookup: bool = False,
        **settings: Any,
    ) -> None:
        if retriever is None:
            settings = {"tool_timeout": TOOL_TIMEOUT, **settings}
        elif tasks.corpus is not None:
            raise SettingError("Give corpus= or retriever=, not both: the search asks one of them.")
        super().__init__((), tasks, **settings)
        require_choice("reward", reward, TEXT_REWARDS)
        self._source = tasks
        self._reward: TextReward = reward
        self._retriever, self._max_results = retriever, max_results
        self._cursor = ArticleCursor() if lookup else None

    def tool_specs(self) -> Sequence[ToolSpec]:
        """`wiki_search` over the corpus or the retriever."""
        place = {"retriever_url": self._retriever} if self._retriever else {"corpus": self._source.corpus_path()}
        return ({"name": "wiki_search", "max_results": self._max_results, **place},)

    def own_tools(self) -> Sequence[EnvTool]:
        """`wiki_lookup`, when asked for: its cursor is part of the episode."""
        if self._cursor is None:
            return []
        words = {"type": "string", "description": "Words to look for.", "minLength": 1}
        parameters = {"type": "object", "properties": {"keyword": words}, "required": ["keyword"]}
        description = "The next sentence with these words in the article found last."
        return [EnvTool("wiki_lookup", description, parameters, self._look_up)]

    def begin(self, task: Task) -> str:
        """No article is open yet."""
        if self._cursor is not None:
            self._cursor.turn_to(())
        return super().begin(task)

    def own_state(self) -> dict[str, Any]:
        """The place in the article, where it can be read."""
        return {**super().own_state(), "cursor": self._cursor.get_state() if self._cursor is not None else None}

    def take_own_state(self, state: dict[str, Any]) -> None:
        """Open the article there."""
        super().take_own_state(state)
        if self._cursor is not None:
            self._cursor.set_state(state["cursor"])

    def _look_up(self, params: dict[str, Any]) -> dict[str, Any]:
        assert self._cursor is not None, "the tool is there only with a cursor"
        return {"status": "success", "data": self._cursor.look_up(params["keyword"])}

    def _call(self, items: Sequence[ToolCall | CallError]) -> list[ToolResult]:
        results = super()._call(items)
        for item, result in zip(items, results, strict=True):
            if self._cursor is not None and isinstance(item, ToolCall) and item.name == "wiki_search" and result.data:
                self._cursor.turn_to(_SENTENCE_END.split(result.data[0]["text"]))
        return results

    def score(self, task: Task, response: str, prediction: str | None) -> Score:
        """Exact match and F1."""
        return score_text(task, response if prediction is None else prediction, self._reward)

    def expert_queries(self, task: Task) -> tuple[str, ...]:
        """One search for each gold article: the data's own queries, or else their titles."""
        return task.plan or task.supporting_titles


class HotpotQAContextEnv(AgentEnv):
    """Questions with their paragraphs, answered in one response; see `hotpotqa`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = {**TEXT_SCORES, "prediction": ""}

    def __init__(
        self,
        tasks: "_Source",
        reward: TextReward,
        *,
        system: str = "full",
        observation: ObservationKind = "text",
        render_mode: str | None = None,
    ) -> None:
        super().__init__(tasks, observation=observation, render_mode=render_mode)
        require_choice("reward", reward, TEXT_REWARDS)
        self._source, self._system = tasks, check_style(system)
        self._reward: TextReward = reward

    @property
    def system_prompt(self) -> str:
        """Text for the system role."""
        return answer_system(self._system, f"{_ROLE} The articles come with it.")

    @property
    def stop(self) -> list[str]:
        """The end of the answer."""
        return ["</answer>"]

    def demonstration(self) -> list[str]:
        """The gold answer."""
        return [f"<answer>{self.task.answers[0]}</answer>"]

    def begin(self, task: Task) -> str:
        """The paragraphs in the data's order, then the question."""
        passages = task.context or self._source.paragraphs(task)
        blocks = [self.show(passage) for passage in passages]
        return "\n\n".join([*blocks, f"Question: {task.question}"])

    def show(self, passage: Passage) -> str:
        """A paragraph as the model sees it."""
        return f"{passage.title}\n{passage.text}"

    def advance(self, action: str) -> Turn:
        """Score the response."""
        response = without_thinking(action)
        prediction = answer_in_tag(response)
        said = response if prediction is None else prediction
        score = score_text(self.task, said, self._reward)
        info: dict[str, InfoValue] = {**score.info, "prediction": said}
        return Turn(ANSWERED, {"task": score.reward}, "answer", score.success, info)


class HotpotQAFactsEnv(HotpotQAContextEnv):
    """As the paragraphs at hand, and the response names the sentences that support its answer; see `hotpotqa`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = {**HotpotQAContextEnv.extra_info, **SUPPORT_SCORES}

    @property
    def system_prompt(self) -> str:
        """Text for the system role."""
        text = super().system_prompt
        return f"{text} {_FACTS}" if self._system in ("full", "short") else text

    def demonstration(self) -> list[str]:
        """The gold facts and the gold answer."""
        facts = "\n".join(f"{title} [{place}]" for title, place in self.task.supporting)
        return [f"<facts>\n{facts}\n</facts>\n<answer>{self.task.answers[0]}</answer>"]

    def advance(self, action: str) -> Turn:
        """Score the response and its facts."""
        turn = super().advance(action)
        said = facts_in_tag(without_thinking(action))
        return replace(turn, info={**turn.info, **score_support(self.task, str(turn.info["prediction"]), said)})

    def show(self, passage: Passage) -> str:
        """Title, then the sentences with their numbers."""
        sentences = " ".join(f"[{place}] {sentence.strip()}" for place, sentence in enumerate(passage.sentences))
        return f"{passage.title}\n{sentences}"


class _Source:
    """Loads the tasks when first called, and finds their corpus; a named place that is not there is told at once."""

    def __init__(
        self,
        split: str,
        data: str | os.PathLike[str] | None,
        corpus: str | os.PathLike[str] | None,
        subset: str,
        on_bad_row: OnBadRow,
    ) -> None:
        require_choice("split", split, (*HOTPOTQA.splits, *HOTPOTQA.further_splits))
        require_choice("subset", subset, SUBSETS)
        if find_file(HOTPOTQA, split, data) is None:
            require_choice("split of the bundled questions", split, HOTPOTQA.splits)
        self.corpus = None if corpus is None else str(check_corpus_path(corpus))
        self._split, self._data, self._subset = split, data, subset
        self._on_bad_row: OnBadRow = on_bad_row

    def __call__(self) -> TaskSet:
        tasks = load_tasks(HOTPOTQA, self._split, self._data, self._on_bad_row)
        return react_subset(tasks) if self._subset == "react500" else tasks

    def corpus_path(self) -> str:
        """The corpus given, or the one beside the data.

        Raises:
            DataNotFoundError: there is none.
        """
        tasks = load_tasks(HOTPOTQA, self._split, self._data, self._on_bad_row)
        path = self.corpus or tasks.corpus
        if not path:
            raise DataNotFoundError(
                f"{tasks.source} has no corpus.jsonl beside it. Pass corpus=PATH (a jsonl file of "
                '{"title", "sentences"} lines), or make both with '
                "`agentr1-envs prepare hotpotqa --source PATH --out PATH`."
            )
        return path

    def open_corpus(self) -> Corpus:
        """The corpus, opened once a process."""
        return open_corpus(self.corpus_path())

    def paragraphs(self, task: Task) -> tuple[Passage, ...]:
        """The paragraphs of a question whose row only names them.

        Raises:
            DataNotFoundError: the row names none, or the corpus lacks one.
        """
        if not task.context_titles:
            raise DataNotFoundError(
                f"Task {task.task_id!r} comes without paragraphs, which mode='context' shows; use data with a "
                "'context' field, or mode='tools'."
            )
        corpus = self.open_corpus()
        found = [(title, corpus.find(title)) for title in task.context_titles]
        if missing := [title for title, passage in found if passage is None]:
            raise DataNotFoundError(f"Task {task.task_id!r}: the corpus {corpus.source} lacks {missing}.")
        return tuple(passage for _, passage in found if passage is not None)
