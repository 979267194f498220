"""Rows of token ids become packed tensors: the only crossing from lists to tensors.

A row is one step (or the prompt after a truncated trajectory, which only the critic reads). Rows are cut into
micro-batches within a budget of tokens; each keeps the indices of its rows, so results come back in the rows' own
order. Loss denominators are already inside the weights: nothing here, and nothing about how rows are packed, changes a
gradient. Under ``tree`` rows share whatever they have in common from their first token on (``prefix_tree.py``); under
``merged`` a line holds all rows of a trajectory whose prompts continue one another; under ``rows`` a line is a row.
"""

import dataclasses
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from agentr1_train.errors import ConfigError, SpanMismatchError
from agentr1_train.prefix_tree import Ids, PrefixTree, Segment, plant

Packing = Literal["tree", "merged", "rows"]
"""How rows lie in tensors; the choice changes what a pass costs and nothing else."""


@dataclass(frozen=True, slots=True)
class Row:
    """One step as the losses need it."""

    prompt_ids: tuple[int, ...]
    """Length P, at least 1."""
    response_ids: tuple[int, ...]
    """The sampled ids, all trained. Length L, may be 0: the row then carries a value and no token."""
    trajectory: tuple[int, int]
    """(group, member)."""
    sampler_logp: tuple[float, ...] = ()
    """Length L, nats."""
    old_logp: tuple[float, ...] = ()
    """Length L; empty before the old policy was evaluated."""
    ref_logp: tuple[float, ...] | None = None
    """Length L; None without a reference."""
    advantage: float = 0.0
    token_advantages: tuple[float, ...] = ()
    """Length L, in place of ``advantage`` where an estimator tells the tokens of a step apart; else empty."""
    weight: float = 0.0
    """Weight of each trained token in the policy loss, global denominators included."""
    old_value: float = 0.0
    return_: float = 0.0
    token_values: tuple[float, ...] = ()
    """The critic at each trained token before the update; length L where the critic is read there, else empty."""
    token_returns: tuple[float, ...] = ()
    """Its targets there."""
    value_weight: float = 0.0
    """Weight in the value loss of this row's value, or of each of its tokens' values; 0 keeps it out."""

    def __len__(self) -> int:
        return len(self.prompt_ids) + len(self.response_ids)


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """One forward pass: R rows in B lines padded on the right to T, N trained tokens in all, row after row.

    Trees lie end to end in one line: B is 1, and rows share positions.
    """

    rows: tuple[int, ...]
    """Index of each row in the list that was packed. Empty in a filler, which has one row of one token."""
    lengths: tuple[int, ...]
    """Trained tokens of each row of ``rows``; they sum to N."""
    input_ids: Tensor
    """Shape: (B, T), long."""
    position_ids: Tensor
    """Shape: (B, T), long."""
    token_index: Tensor
    """Flat position in B * T whose logits predict each trained token: the token before it. Shape: (N,), long."""
    target_index: Tensor
    """Flat position in B * T of each trained token itself. Shape: (N,), long."""
    targets: Tensor
    """Shape: (N,), long."""
    sampler_logp: Tensor
    """Shape: (N,), float32, as the next four."""
    old_logp: Tensor
    ref_logp: Tensor | None
    advantage: Tensor
    weight: Tensor
    step: Tensor
    """Index of each token's row in this micro-batch. Shape: (N,), long."""
    trajectory: Tensor
    """Index of each token's trajectory in this micro-batch. Shape: (N,), long."""
    n_steps: int
    n_trajectories: int
    prompt_end: Tensor
    """Flat position in B * T of each row's last prompt token. Shape: (R,), long."""
    token_value: Tensor
    """Shape: (N,), float32, as the next."""
    token_return: Tensor
    old_value: Tensor
    """Shape: (R,), float32, as the next two."""
    returns: Tensor
    value_weight: Tensor
    segments: tuple[Segment, ...] | None = None
    """The chains of a tree; ``None`` where every line is a plain sequence."""

    def to(self, device: torch.device | str) -> "MicroBatch":
        """Return this micro-batch with every tensor on ``device``."""
        moved = {
            item.name: value.to(device, non_blocking=True)
            for item in dataclasses.fields(self)
            if isinstance(value := getattr(self, item.name), Tensor)
        }
        return dataclasses.replace(self, **moved)


def pack(
    rows: Sequence[Row],
    micro_batch_tokens: int,
    pad_id: int = 0,
    keep_trajectories_together: bool = False,
    packing: Packing = "rows",
) -> list[MicroBatch]:
    """Cut rows into micro-batches of at most ``micro_batch_tokens``, padding included; a longer row stands alone.

    Args:
        rows: in any order.
        micro_batch_tokens: bound on B * T.
        pad_id: fills input ids on the right; its value changes nothing.
        keep_trajectories_together: all rows of a trajectory share a micro-batch, whatever its size: needed when the
            importance ratio averages over the whole trajectory.
        packing: what rows share.

    Raises:
        ConfigError: the budget is below 1.
        SpanMismatchError: a row does not fit together.
    """
    if micro_batch_tokens < 1:
        raise ConfigError(f"engine.micro_batch_tokens = {micro_batch_tokens}: at least 1 is needed.")
    for row in rows:
        _check(row)
    if packing == "tree":
        sequences = [row.prompt_ids + row.response_ids for row in rows]
        units = _by_trajectory(rows) if keep_trajectories_together else None
        return [_collate(rows, _in_tree(tree)) for tree in plant(sequences, micro_batch_tokens, units)]
    batches: list[list[list[int]]] = []
    current: list[list[int]] = []
    width = 0
    lines = _chains(rows) if packing == "merged" else [[index] for index in range(len(rows))]
    for unit in _units(rows, lines, keep_trajectories_together):
        longest = max(len(rows[line[-1]]) for line in unit)
        if current and (len(current) + len(unit)) * max(width, longest) > micro_batch_tokens:
            batches.append(current)
            current, width = [], 0
        current = current + unit
        width = max(width, longest)
    if current:
        batches.append(current)
    return [_collate(rows, _in_lines(rows, chosen, pad_id)) for chosen in batches]


def equalize(batches: Sequence[MicroBatch], count: int) -> list[MicroBatch]:
    """Append fillers up to ``count`` micro-batches: ranks must make the same number of passes (ZeRO-2 and ZeRO-3)."""
    return [*batches, *(filler() for _ in range(count - len(batches)))]


def filler() -> MicroBatch:
    """Return a micro-batch of one token that trains nothing: N is 0 and the value weight is 0."""
    rows = [Row(prompt_ids=(0,), response_ids=(), trajectory=(-1, -1))]
    batch = _collate(rows, _in_lines(rows, [[0]], 0))
    return dataclasses.replace(batch, rows=(), lengths=())


def split_tokens(batches: Sequence[MicroBatch], outputs: Sequence[Tensor], n_rows: int) -> list[tuple[float, ...]]:
    """Deal outputs of shape (N,), one a micro-batch, back to the rows: element i belongs to row i, length L_i."""
    result: list[tuple[float, ...]] = [()] * n_rows
    for batch, output in zip(batches, outputs, strict=True):
        pieces = output.detach().float().cpu().split(batch.lengths) if batch.lengths else ()
        for row, piece in zip(batch.rows, pieces, strict=True):
            result[row] = tuple(piece.tolist())
    return result


def split_rows(batches: Sequence[MicroBatch], outputs: Sequence[Tensor], n_rows: int) -> list[float]:
    """Deal outputs of shape (R,), one a micro-batch, back to the rows: element i belongs to row i."""
    result = [0.0] * n_rows
    for batch, output in zip(batches, outputs, strict=True):
        for row, value in zip(batch.rows, output.detach().float().tolist(), strict=False):
            result[row] = value
    return result


def assert_spans(batches: Sequence[MicroBatch], rows: Sequence[Row]) -> None:
    """Compare, in the packed tensors, every trained span and its targets with the ids that were sampled.

    Also checks that every row is there exactly once, and that each trained token is predicted from the one before it.

    Raises:
        SpanMismatchError: names the row, the position in the response, and both ids.
    """
    seen = sorted(row for batch in batches for row in batch.rows)
    if seen != list(range(len(rows))):
        raise SpanMismatchError(f"{len(rows)} rows were packed, but the micro-batches hold rows {seen}.")
    for batch in batches:
        sampled = [token for row in batch.rows for token in rows[row].response_ids]
        inputs = batch.input_ids.flatten()[batch.target_index].tolist()
        sources, expected = batch.token_index.tolist(), _token_before(batch)
        if inputs == sampled and batch.targets.tolist() == sampled and sources == expected:
            continue
        where = [(row, at) for row in batch.rows for at in range(len(rows[row].response_ids))]
        found = zip(where, sampled, inputs, batch.targets.tolist(), sources, expected, strict=True)
        for (row, at), want, seen_by_model, target, source, before in found:
            if not (want == seen_by_model == target and source == before):
                group, member = rows[row].trajectory
                raise SpanMismatchError(
                    f"token {at} of the response in row {row} (group {group}, member {member}): sampled id {want}, "
                    f"but the packed input holds {seen_by_model} and the target is {target}, predicted at position "
                    f"{source} where the token before it is at {before}. Something changed the tensors after collation."
                )


def _token_before(batch: MicroBatch) -> list[int]:
    """Return the position of the token before each trained one: the row's last trained one, or its prompt's end."""
    before = batch.target_index.roll(1)
    lengths = torch.tensor(batch.lengths, dtype=torch.long)
    firsts = (lengths.cumsum(0) - lengths)[lengths > 0]
    before[firsts] = batch.prompt_end[: len(lengths)][lengths > 0]
    return before.tolist()


def _chains(rows: Sequence[Row]) -> list[list[int]]:
    """Cut rows into runs of one trajectory in which each prompt begins with the whole row before it."""
    chains: list[list[int]] = []
    for index, row in enumerate(rows):
        before = rows[index - 1] if index else None
        if (
            before is not None
            and before.trajectory == row.trajectory
            and row.prompt_ids[: len(before)] == before.prompt_ids + before.response_ids
        ):
            chains[-1].append(index)
        else:
            chains.append([index])
    return chains


def _units(rows: Sequence[Row], lines: Sequence[list[int]], together: bool) -> list[list[list[int]]]:
    """Return lines of row indices, grouped where they must not part, longest first; ties keep a fixed order."""
    units: dict[object, list[list[int]]] = {}
    for line in lines:
        units.setdefault(rows[line[0]].trajectory if together else line[0], []).append(line)
    return sorted(units.values(), key=lambda unit: (-max(len(rows[line[-1]]) for line in unit), unit[0][0]))


def _by_trajectory(rows: Sequence[Row]) -> list[list[int]]:
    units: dict[tuple[int, int], list[int]] = {}
    for index, row in enumerate(rows):
        units.setdefault(row.trajectory, []).append(index)
    return list(units.values())


@dataclass(frozen=True, slots=True)
class _Layout:
    """Where rows lie in the tensors of a micro-batch."""

    rows: tuple[int, ...]
    paths: Sequence[Ids]
    """Flat position of every token of each of ``rows``."""
    input_ids: Tensor
    position_ids: Tensor
    segments: tuple[Segment, ...] | None = None


def _in_lines(rows: Sequence[Row], lines: Sequence[Sequence[int]], pad_id: int) -> _Layout:
    """Lay rows into padded lines: a line holds the last of its rows, which begins with all the others."""
    width = max(len(rows[line[-1]]) for line in lines)
    input_ids = torch.full((len(lines), width), pad_id)
    for at, line in enumerate(lines):
        row = rows[line[-1]]
        input_ids[at, : len(row)] = torch.tensor(row.prompt_ids + row.response_ids)
    return _Layout(
        rows=tuple(index for line in lines for index in line),
        paths=[at * width + np.arange(len(rows[index])) for at, line in enumerate(lines) for index in line],
        input_ids=input_ids,
        position_ids=torch.arange(width).expand(len(lines), width).contiguous(),
    )


def _in_tree(tree: PrefixTree) -> _Layout:
    """Lay a tree into one line, its positions in depth-first order and its depths as position ids.

    A tree without a branch is a plain sequence, and the model attends over it as over any other.
    """
    return _Layout(
        rows=tree.sequences,
        paths=tree.paths,
        input_ids=torch.from_numpy(tree.token_ids).unsqueeze(0),
        position_ids=torch.from_numpy(tree.depths).unsqueeze(0),
        segments=tree.segments if len(tree.segments) > 1 else None,
    )


def _collate(rows: Sequence[Row], layout: _Layout) -> MicroBatch:
    """Gather what the losses read of the rows that were laid out."""
    picked = [rows[index] for index in layout.rows]
    lengths = torch.tensor([len(row.response_ids) for row in picked])
    trajectories = {key: at for at, key in enumerate(dict.fromkeys(row.trajectory for row in picked))}
    spans = [path[len(row.prompt_ids) - 1 :] for row, path in zip(picked, layout.paths, strict=True)]

    def each_row(values: list[float]) -> Tensor:
        return torch.tensor(values, dtype=torch.float32)

    def each_token(values: Tensor) -> Tensor:
        return values.repeat_interleave(lengths)

    def tokens(values: Sequence[tuple[float, ...] | None]) -> Tensor:
        return torch.tensor([value for span in values for value in (span or ())], dtype=torch.float32)

    has_reference = all(row.ref_logp is not None for row in picked)
    nothing = [(0.0,) * len(row.response_ids) for row in picked]
    return MicroBatch(
        rows=layout.rows,
        lengths=tuple(lengths.tolist()),
        input_ids=layout.input_ids,
        position_ids=layout.position_ids,
        token_index=torch.from_numpy(np.concatenate([span[:-1] for span in spans])),
        target_index=torch.from_numpy(np.concatenate([span[1:] for span in spans])),
        targets=torch.tensor([token for row in picked for token in row.response_ids], dtype=torch.long),
        sampler_logp=tokens([row.sampler_logp or zeros for row, zeros in zip(picked, nothing, strict=True)]),
        old_logp=tokens([row.old_logp or zeros for row, zeros in zip(picked, nothing, strict=True)]),
        ref_logp=tokens([row.ref_logp for row in picked]) if has_reference else None,
        advantage=tokens([row.token_advantages or (row.advantage,) * len(row.response_ids) for row in picked]),
        weight=each_token(each_row([row.weight for row in picked])),
        step=each_token(torch.arange(len(picked))),
        trajectory=each_token(torch.tensor([trajectories[row.trajectory] for row in picked])),
        n_steps=len(picked),
        n_trajectories=len(trajectories),
        prompt_end=torch.tensor([int(span[0]) for span in spans]),
        token_value=tokens([row.token_values or zeros for row, zeros in zip(picked, nothing, strict=True)]),
        token_return=tokens([row.token_returns or zeros for row, zeros in zip(picked, nothing, strict=True)]),
        old_value=each_row([row.old_value for row in picked]),
        returns=each_row([row.return_ for row in picked]),
        value_weight=each_row([row.value_weight for row in picked]),
        segments=layout.segments,
    )


def _check(row: Row) -> None:
    """A row that does not fit together is a broken invariant, not data."""
    names = ("sampler_logp", "old_logp", "ref_logp", "token_advantages", "token_values", "token_returns")
    spans = {name: getattr(row, name) for name in names}
    for name, span in spans.items():
        if span and len(span) != len(row.response_ids):
            raise SpanMismatchError(
                f"row of group {row.trajectory[0]}, member {row.trajectory[1]}: {len(row.response_ids)} response ids "
                f"but {len(span)} values in {name}."
            )
    if not row.prompt_ids:
        raise SpanMismatchError(f"row of group {row.trajectory[0]}, member {row.trajectory[1]}: the prompt is empty.")
