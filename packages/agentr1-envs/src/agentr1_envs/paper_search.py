"""PaperSearch: find the papers that answer a research question, by searching and by following references."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, ClassVar

from agentr1_envs.agent_env import InfoValue, ObservationKind, Turn
from agentr1_envs.call_counts import CALL_INFO
from agentr1_envs.errors import SettingError, refuse_unknown, require_choice
from agentr1_envs.loader import OnBadRow
from agentr1_envs.paper_library import Library, is_open, paper_task
from agentr1_envs.paper_pool import FoundPaper, PaperPool, read_found, state_text
from agentr1_envs.paper_rules import RULE_NAMES, PaperRules, process_reward, split_rules
from agentr1_envs.paper_scorers import PaperScorer, find_scorer, scores_of
from agentr1_envs.prompts import choose_system
from agentr1_envs.retrieval_scores import RECALL_AT, score_ranking
from agentr1_envs.scoring import Score
from agentr1_envs.signatures import takes
from agentr1_envs.spaces import Message
from agentr1_envs.tasks import Task
from agentr1_envs.tool_env import (
    BaseTool,
    Encoder,
    Paper,
    PaperExpand,
    PaperSearch,
    ParsedResponse,
    ToolCall,
    ToolEnv,
    find_encoder,
)
from agentr1_envs.tool_settings import ToolSettings

MAX_STEPS = 5
MAX_CALLS_PER_STEP = 5
REWARD_SCORERS = ("gold", "relevance")
RETRIEVALS = ("bm25", "dense")

TOOL_TIMEOUT = 10.0
"""Seconds a call may take. It takes milliseconds; a limit that a busy machine can reach would change results."""

_SETTINGS = (
    "format",
    "system",
    "tools_in_template",
    "max_steps",
    "max_calls_per_step",
    "tool_seconds_per_episode",
    "max_invalid",
    "format_reward",
    "invalid_penalty",
)
_REFUSED = tuple(item.name for item in fields(ToolSettings) if item.name not in _SETTINGS)
_ROLE = "You search for the papers that answer a research question."
_RULES = (
    "You have at most {max_steps} responses, each with at most {max_calls_per_step} calls. After each you see the best "
    "papers found so far. A new query, or the references of a paper that fits, find more; a query repeated, or a paper "
    "expanded twice, finds nothing. When nothing is missing, write <answer>done</answer> and make no call: the papers "
    "found are the answer."
)


@takes(
    PaperRules,
    ToolSettings,
    without=_REFUSED,
    max_steps=MAX_STEPS,
    max_calls_per_step=MAX_CALLS_PER_STEP,
    observation="text",
    render_mode=None,
)
def paper_search(
    *,
    split: str = "train",
    data: str | os.PathLike[str] | None = None,
    corpus: str | os.PathLike[str] | None = None,
    kind: str | None = None,
    on_bad_row: OnBadRow = "refuse",
    retrieval: str = "bm25",
    encoder: str | Encoder | None = None,
    scorer: str | PaperScorer = "retrieval",
    reward_scorer: str = "gold",
    **settings: Any,
) -> "PaperSearchEnv":
    """A research question; find the papers that answer it.

    ## Description
    Two tools bring papers into a pool: ``paper_search(query)`` finds the ten that fit best by title and abstract,
    ``paper_expand(paper_id)`` up to 30 that a paper of the pool cites. Without data of your own the library is a small
    invented one that comes with the package: 408 papers with citations, some of which call their subject by another
    name; 211 questions to train on and 60 to test on.

    A relevance scorer, which sees no label, gives each paper a score in 0..1; it decides what is shown, dropped (below
    0.01) and returned. The result is the papers of the pool with a score of at least 0.5, best first.

    ## Action Space
    `Text`: the model's whole response: calls in `format`, or ``<answer>done</answer>``.

    ## Observation Space
    The whole state at each step: the question, the queries so far, what went wrong, and the 10 best expanded and 10
    best new papers with id, title and abstract (400 words at most). As `Text`; with ``observation="messages"`` as
    `Messages`: the system message and the state, nothing else. A recipe that reads the text sets
    ``rollout.context = "replace"``.

    ## Rewards
    PaperScout's process reward, in ``reward/env``: among the three best papers a step brought into the pool, 1 for
    each that scores at least 0.4; less 0.1 a search and 0.05 an expansion; a repeated query, and an id that is unknown
    (not in the pool) or already expanded, costs 0.5 instead. ``reward_scorer="gold"`` scores 1 for a paper that is
    wanted and 0 for another, "relevance" takes the relevance scorer's word. ``reward/task`` is always 0: the answer
    itself pays nothing. ``reward/format`` is what form pays or costs, 0 unless it is set. The step's reward is the sum.

    ## Starting State
    A question with an empty pool, drawn by the seed or named by ``options={"task_id": ...}``.

    ## Episode End
    Terminated by the answer (`end_reason` "answer"), by `patience` steps in a row without a new paper
    ("no_new_papers"), or by `max_invalid` with invalid calls only ("max_invalid"); truncated after `max_steps`.

    ## Info
    * `success` (bool): whether the episode ended by its own rules with a recall of 1.
    * `task_id` (str): the question.
    * `end_reason` (str): why the episode is over; empty while it goes on.
    * `steps` (int): responses so far.
    * `reward/task`, `reward/env`, `reward/format` (float): the parts of this step's reward.
    * `result` (tuple of str): ids of the papers returned so far, best first.
    * `precision`, `recall`, `f1` (float): of the result, against the wanted papers; titles are compared by their
      letters. The mean over questions, which `evaluate` reports, is the macro average.
    * `recall@20`, `recall@50`, `recall@100` (float): of its first 20, 50 and 100.
    * `pool_size`, `new_papers` (int): papers in the pool, and those that the last step brought.
    * `searches`, `expansions`, `faults` (int): what the episode was charged for so far.
    * `tool_calls`, `tool_errors` (int): calls so far, and how many of them failed.
    * `injected_errors` (int), `hops_found` (int): as in every environment with tools; 0 here.
    * `invalid_calls`, `invalid_steps` (int): calls that were written wrongly, and steps that had no other call.
    * `error_codes` (tuple of str): what went wrong in the last response.
    * `prediction` (str): the answer as it was read.

    ## Arguments
    * `split`: "train" or "test".
    * `data`: a file, a folder, or "bundled"; None looks in AGENTR1_DATA, then the user's data folder, then takes the
      bundled questions.
    * `corpus`: a jsonl file of papers; None takes the ``corpus.jsonl`` beside the data, with the ``edges.tsv`` there.
    * `kind`: only questions of this kind (of the data's `kind` or `source`).
    * `on_bad_row`: "refuse" a file with rows that cannot be read, or "skip" them.
    * `retrieval`: "bm25" or "dense".
    * `encoder`: for "dense", and for scorer "embedding": a function from a list of texts to vectors, or
      "module:function".
    * `scorer`: "retrieval" (the score of the search, for a reference that of the question, as a share of the best in
      its list), "embedding" (cosine of question and paper), a function ``(question, papers) -> scores``, or
      "module:function".
    * `reward_scorer`: "gold" or "relevance".
    * `results`, `references`, `shown_expanded`, `shown_new`, `abstract_words`, `drop_below`, `result_from`, `patience`,
      `best_new`, `good_from`, `search_cost`, `expand_cost`, `fault_cost`: the numbers above; fields of `PaperRules`.
    * `observation`: "text" or "messages". `render_mode`: None, or "ansi".
    * `format`, `system`, `tools_in_template`, `max_steps`, `max_calls_per_step`, `tool_seconds_per_episode`,
      `max_invalid`, `format_reward`, `invalid_penalty`: fields of `ToolSettings`.

    ## Example
    ```python
    import gymnasium

    env = gymnasium.make("agentr1_envs:agentr1/PaperSearch-v0", data="bundled", format="call")
    state, info = env.reset(seed=0)
    print(state)
    query = state.removeprefix("Question: ").splitlines()[0]
    state, reward, terminated, truncated, info = env.step(f'<tool_call>paper_search(query="{query}")</tool_call>')
    assert info["searches"] == 1 and info["pool_size"] > 0 and "New papers (" in state
    ```

    ## References
    PaperScout: An Autonomous Agent for Academic Paper Search with Process-Aware Sequence-Level Policy Optimization.
    2026. Its tools and process reward; the library and the scorers here are this project's.

    ## Version History
    v0: first version.
    """
    require_choice("retrieval", retrieval, RETRIEVALS)
    require_choice("reward_scorer", reward_scorer, REWARD_SCORERS)
    legal = (*_SETTINGS, *RULE_NAMES, "observation", "render_mode")
    refuse_unknown("agentr1/PaperSearch-v0", settings, legal)
    function = _encoder(encoder)
    if retrieval == "dense" and function is None:
        raise SettingError("retrieval='dense' needs encoder=, a function from a list of texts to vectors.")
    if function is not None and retrieval != "dense" and scorer != "embedding":
        raise SettingError("encoder= has no effect without retrieval='dense' or scorer='embedding'.")
    library = Library(split, data, corpus, kind, on_bad_row, function if retrieval == "dense" else None)
    return PaperSearchEnv(library, find_scorer(scorer, function), reward_scorer == "gold", **settings)


class PaperSearchEnv(ToolEnv):
    """A research question and a pool of papers; see `paper_search`."""

    extra_info: ClassVar[Mapping[str, InfoValue]] = {
        **CALL_INFO,
        "precision": 0.0,
        "recall": 0.0,
        "f1": 0.0,
        **{f"recall@{k}": 0.0 for k in RECALL_AT},
        "result": (),
        "pool_size": 0,
        "new_papers": 0,
        "searches": 0,
        "expansions": 0,
        "faults": 0,
    }
    role = _ROLE

    def __init__(
        self,
        library: Library,
        scorer: PaperScorer,
        reward_by_gold: bool,
        *,
        observation: ObservationKind = "text",
        render_mode: str | None = None,
        **settings: Any,
    ) -> None:
        self.rules, settings = split_rules(settings)
        limits = {"max_steps": MAX_STEPS, "max_calls_per_step": MAX_CALLS_PER_STEP}
        super().__init__((), library, observation=observation, render_mode=render_mode, **{**limits, **settings})
        self._library, self._scorer, self._reward_by_gold = library, scorer, reward_by_gold
        self._visit = _Visit(frozenset())

    def tool_specs(self) -> Sequence[BaseTool]:
        """`paper_search` and `paper_expand` over the library, without the papers this question may not find."""
        path, encoder, rules = self._library.corpus_path(), self._library.encoder, self.rules
        return (
            PaperSearch(path, encoder=encoder, keep=self._may_find, max_results=rules.results, timeout=TOOL_TIMEOUT),
            PaperExpand(
                path,
                encoder=encoder,
                keep=self._may_find,
                query=lambda: self.task.question,
                max_results=rules.references,
                timeout=TOOL_TIMEOUT,
            ),
        )

    @property
    def system_prompt(self) -> str:
        """Text for the system role, in the style the settings ask for."""
        if self._system_text is None:
            settings, schemas = self.settings, self.tool_schemas
            parts = [self.role] if settings.tools_in_template else [self.role, self._format.instructions(schemas)]
            rules = _RULES.format(max_steps=self.max_steps, max_calls_per_step=settings.max_calls_per_step)
            short = "Call paper_search and paper_expand as needed, then write <answer>done</answer>."
            self._system_text = choose_system(settings.system, "\n\n".join([*parts, rules]), short)
        return self._system_text

    def expert_calls(self, task: Task) -> list[ToolCall]:
        """The task's plan ("expand[id]", else a query); without one a search for the title of each wanted paper."""
        if not task.plan:
            index = self._library.index()
            found = (index.find(paper_id) for paper_id in paper_task(task).gold)
            titles = [*(paper.title for paper in found if paper is not None), *paper_task(task).gold_titles]
            return [ToolCall("paper_search", {"query": title}) for title in titles]
        return [
            ToolCall("paper_expand", {"paper_id": item[7:-1]})
            if item.startswith("expand[")
            else ToolCall("paper_search", {"query": item})
            for item in task.plan
        ]

    def demonstration(self) -> list[str]:
        """The expert's calls, as many in a response as may run, then the end."""
        calls = [self._format.format_call(call) for call in self.expert_calls(self.task)]
        room = self.settings.max_calls_per_step
        grouped = ["\n".join(calls[start : start + room]) for start in range(0, len(calls), room)]
        return [*grouped[: self.max_steps - 1], "<answer>done</answer>"]

    def begin(self, task: Task) -> str:
        """Start with an empty pool; the opening is the question and that."""
        super().begin(task)
        self._visit = _Visit(self._library.gold(paper_task(task)))
        return state_text(task.question, self._visit.pool, self.rules)

    def score(self, task: Task, response: str, prediction: str | None) -> Score:
        """Nothing more is paid at the end; success is that no wanted paper is missing."""
        info = self._paper_info()
        return Score(0.0, info["recall"] == 1.0, {**info, "new_papers": 0})

    def _run(self, parsed: ParsedResponse) -> Turn:
        visit = self._visit
        visit.notes, visit.new = [], []
        turn = super()._run(parsed)  # runs the calls, and asks `_earned` what they bring
        visit.steps_without_new = 0 if visit.new else visit.steps_without_new + 1
        ended = turn.ended or ("no_new_papers" if visit.steps_without_new >= self.rules.patience else "")
        info = self._paper_info()
        state = state_text(self.task.question, visit.pool, self.rules, visit.queries, visit.notes)
        return replace(turn, feedback=state, ended=ended, success=info["recall"] == 1.0, info={**turn.info, **info})

    def _earned(self, items: Sequence[Any], results: Sequence[Any]) -> float:
        """Take what the calls found into the pool, in call order, and pay for the step."""
        visit = self._visit
        searches = expansions = faults = 0
        for result in results:
            data: Mapping[str, Any] = result.data or {}
            if result.source == "paper_search" and result.ok:
                if visit.is_repeated(data["query"]):
                    faults += 1
                    visit.notes.append(f"Not searched again: {data['query']!r}.")
                else:
                    searches += 1
                    self._take(data["papers"])
            elif result.source == "paper_expand" and "paper_id" in data:
                if problem := visit.cannot_expand(data["paper_id"]):
                    faults += 1
                    visit.notes.append(problem)
                else:
                    expansions += 1
                    visit.pool.expand(data["paper_id"])
                    self._take(data["papers"])
            else:
                visit.notes.append(result.text)
        visit.searches, visit.expansions = visit.searches + searches, visit.expansions + expansions
        visit.faults += faults
        return process_reward(self.rules, self._reward_scores(), searches, expansions, faults)

    def _take(self, papers: Sequence[Mapping[str, Any]]) -> None:
        found = read_found(papers)
        scores = scores_of(self._scorer, self.task.question, found)
        self._visit.new += self._visit.pool.add(found, scores, self.rules.drop_below)

    def _reward_scores(self) -> list[float]:
        """What the reward thinks of this step's new papers; the only place where a label meets the reward."""
        visit = self._visit
        if self._reward_by_gold:
            return [float(paper.key in visit.gold) for paper in visit.new]
        return [visit.pool.score_of(paper) for paper in visit.new]

    def _paper_info(self) -> dict[str, InfoValue]:
        visit = self._visit
        result = visit.pool.ranked(self.rules.result_from)
        scores = score_ranking([paper.key for paper in result], visit.gold)
        return {
            "precision": scores.precision,
            "recall": scores.recall,
            "f1": scores.f1,
            **{f"recall@{k}": recall for k, recall in zip(RECALL_AT, scores.recall_at, strict=True)},
            "result": tuple(paper.id for paper in result),
            "pool_size": len(visit.pool),
            "new_papers": len(visit.new),
            "searches": visit.searches,
            "expansions": visit.expansions,
            "faults": visit.faults,
        }

    def _may_find(self, paper: Paper) -> bool:
        return is_open(paper_task(self.task), paper)

    def _observe(self, new_text: str) -> Any:
        """The state alone: it holds everything that earlier observations told."""
        if self.observation_kind == "text":
            return new_text
        state = (Message(role="user", content=new_text),)
        return (Message(role="system", content=self.system_prompt), *state) if self.system_prompt else state


class _Visit:
    """What one episode knows and has used."""

    def __init__(self, gold: frozenset[str]) -> None:
        self.gold = gold
        """Keys of the wanted papers; for reward and metrics only."""
        self.pool = PaperPool()
        self.queries: list[str] = []
        self.notes: list[str] = []
        self.new: list[FoundPaper] = []
        """Papers the last step brought into the pool."""
        self.steps_without_new = self.searches = self.expansions = self.faults = 0

    def is_repeated(self, query: str) -> bool:
        """True when the query was asked before, case and blanks aside; otherwise it is noted."""
        key = " ".join(query.casefold().split())
        if any(" ".join(old.casefold().split()) == key for old in self.queries):
            return True
        self.queries.append(" ".join(query.split()))
        return False

    def cannot_expand(self, paper_id: str) -> str:
        """Why this paper's references cannot be asked for; empty when they can."""
        if paper_id not in self.pool:
            return f"There is no paper [{paper_id}] among those found."
        return f"[{paper_id}] is expanded already." if self.pool.is_expanded(paper_id) else ""


def _encoder(given: str | Encoder | None) -> Encoder | None:
    try:
        return find_encoder(given)
    except ValueError as error:
        raise SettingError(str(error)) from error
