"""The columns of a prepared parquet file, and how to read them back.

They are the columns of verl and Agent-R1 (`data_source, prompt, ability, reward_model, extra_info, agent_name,
env_kwargs`) with `task_id` and `split` in front, so rows written for those projects are read as they are.
"""

from typing import Any, cast

from agentr1_envs.rows import Row

COLUMNS = (
    "task_id",
    "split",
    "data_source",
    "prompt",
    "ability",
    "reward_model",
    "extra_info",
    "agent_name",
    "env_kwargs",
)
AGENT_NAME = "agent_env_loop"


def is_prepared(row: Row) -> bool:
    """True for a row whose gold answer stands under `reward_model`."""
    return row.has("reward_model")


def row_id(row: Row, split: str) -> str:
    """The row's own id, or ``<split>-<index>`` from its 0-based place in the file."""
    for field in ("task_id", "id", "_id"):
        if row.has(field):
            return row.text(field)
    details = row.fields.get("extra_info")
    index: Any = cast("dict[str, Any]", details).get("index") if isinstance(details, dict) else None
    return f"{split}-{row.line - 1 if not isinstance(index, int) else index:05d}"


def question_of(row: Row) -> str:
    """`extra_info.question`, else `question`, else the last user message of `prompt`.

    Raises:
        DataRowError: none of them is there.
    """
    details = row.section("extra_info")
    if details.has("question"):
        return details.text("question")
    if row.has("question"):
        return row.text("question")
    prompt = row.fields.get("prompt")
    if isinstance(prompt, str) and prompt.strip():
        return prompt
    for message in reversed(row.items("prompt")):
        if isinstance(message, dict):
            entry = Row(row.path, row.line, cast("dict[str, Any]", message))
            if entry.fields.get("role") == "user":
                return entry.text("content")
    raise row.error("prompt", "needs a user message, or extra_info.question.")


def gold_answers(row: Row) -> tuple[str, ...]:
    """`reward_model.ground_truth`: a string, a list of them, or ``{"target": ...}`` as Search-R1 writes it.

    Aliases under `extra_info.aliases` follow.

    Raises:
        DataRowError: there is none.
    """
    found: Any = row.section("reward_model").fields.get("ground_truth")
    if isinstance(found, dict):
        found = cast("dict[str, Any]", found).get("target")
    answers = cast("list[Any]", found) if isinstance(found, list) else [found]
    answers = [*answers, *row.section("extra_info").items("aliases")]
    texts = [str(answer) for answer in answers if isinstance(answer, str | int | float) and str(answer).strip()]
    if not texts:
        raise row.error("reward_model.ground_truth", f"needs an answer, found {found!r}.")
    return tuple(texts)
