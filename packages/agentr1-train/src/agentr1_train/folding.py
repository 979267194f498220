"""Prompts on disk: a row keeps what no earlier row said, and where the rest stands. The prefix tree of a rollout file.

A prompt repeats the history, so a file of whole prompts grows with the square of the steps. Folded, each distinct token
is written once; the order of the rows stays, and reading in that order unfolds them exactly.
"""

from bisect import bisect_left
from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

Fields = MutableMapping[str, Any]
"""One row: its columns by name."""


def fold(rows: Sequence[Fields]) -> Iterator[dict[str, Any]]:
    """Yield the columns that stand for ``prompt_ids`` and ``final_prompt_ids`` in each row.

    ``prompt_base`` is an earlier row and ``prompt_shared`` the number of tokens that the prompt has in common with its
    prompt and response; ``prompt_rest`` are the tokens after those. A final prompt goes on from the row it stands in.
    """
    sorted_keys: list[bytes] = []
    row_of: dict[bytes, int] = {}
    for index, row in enumerate(rows):
        prompt, response = (_array(row.get(name)) for name in ("prompt_ids", "response_ids"))
        base, shared = _nearest(prompt, sorted_keys, row_of)
        columns: dict[str, Any] = {"prompt_base": base, "prompt_shared": shared, "prompt_rest": None}
        if row.get("prompt_ids") is not None:
            columns["prompt_rest"] = row["prompt_ids"][shared:]
        whole = np.concatenate([prompt, response]).astype(prompt.dtype)  # which forgets the order of bytes
        if row.get("final_prompt_ids") is not None:
            final = _array(row["final_prompt_ids"])
            kept = _common_prefix(final, whole)
            columns |= {"final_prompt_shared": kept, "final_prompt_rest": row["final_prompt_ids"][kept:]}
        key = whole.tobytes()
        if len(whole) and key not in row_of:
            row_of[key] = index
            sorted_keys.insert(bisect_left(sorted_keys, key), key)
        yield columns


def unfold(rows: Sequence[Fields]) -> None:
    """Put ``prompt_ids`` and ``final_prompt_ids`` back into rows that ``fold`` parted, in the order of the file."""
    wholes: list[list[int]] = []
    for row in rows:
        prompt = None
        if row["prompt_rest"] is not None:
            shared = row["prompt_shared"]
            prompt = (wholes[row["prompt_base"]][:shared] if shared else []) + row["prompt_rest"]
        row["prompt_ids"] = prompt
        whole = (prompt or []) + (row["response_ids"] or [])
        final = row["final_prompt_rest"]
        row["final_prompt_ids"] = None if final is None else whole[: row["final_prompt_shared"]] + final
        wholes.append(whole)


def _nearest(
    prompt: NDArray[np.uint32], sorted_keys: Sequence[bytes], row_of: dict[bytes, int]
) -> tuple[int | None, int]:
    """Return the row that has most leading tokens in common with a prompt, and how many; ``None`` if none has any.

    In the order of the ids it is one of the prompt's two neighbours.
    """
    at = bisect_left(sorted_keys, prompt.tobytes())
    near = [
        (_common_prefix(prompt, np.frombuffer(key, ">u4")), row_of[key]) for key in sorted_keys[max(0, at - 1) : at + 1]
    ]
    shared, row = max(near, default=(0, 0))
    return (row, shared) if shared else (None, 0)


def _array(ids: Sequence[int] | None) -> NDArray[np.uint32]:
    return np.array(ids or (), dtype=">u4")  # big-endian: bytes compare as the ids do


def _common_prefix(a: NDArray[np.uint32], b: NDArray[np.uint32]) -> int:
    length = min(len(a), len(b))
    differs = np.flatnonzero(a[:length] != b[:length])
    return int(differs[0]) if len(differs) else length
