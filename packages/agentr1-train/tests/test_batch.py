"""Packing rows: nothing is lost, nothing is changed, and no gradient depends on how rows were cut."""

import dataclasses
import random
from typing import Any

import pytest
import torch
from agentr1_train.batch import (
    MicroBatch,
    Row,
    assert_spans,
    equalize,
    filler,
    pack,
    split_rows,
    split_tokens,
)
from agentr1_train.config import AlgorithmConfig, OptimizerConfig
from agentr1_train.errors import ConfigError, SpanMismatchError
from agentr1_train.losses import policy_loss, token_weights
from agentr1_train.policy import PolicyModel
from agentr1_train.presets import AlgorithmSettings, resolve
from agentr1_train.update import loss_inputs
from hypothesis import given, settings
from hypothesis import strategies as st


def make_rows(trajectories: int = 4, steps: int = 2, seed: int = 0, empty: bool = True) -> list[Row]:
    """Ragged rows of random ids below 320; the second row's response is empty if asked."""
    draw = random.Random(seed)
    rows = []
    for at in range(trajectories * steps):
        prompt = tuple(draw.randrange(320) for _ in range(draw.randint(2, 20)))
        response = tuple(draw.randrange(320) for _ in range(0 if empty and at == 1 else draw.randint(1, 9)))
        rows.append(
            Row(
                prompt,
                response,
                (at // steps // 2, at // steps % 2),
                sampler_logp=tuple(draw.uniform(-6, -5) for _ in response),
                old_logp=tuple(draw.uniform(-6, -5) for _ in response),
                advantage=draw.uniform(-1, 1),
                weight=0.05,
                old_value=draw.random(),
                return_=draw.random(),
                value_weight=0.1,
            )
        )
    return rows


def gradient(model: Any, batches: list[MicroBatch], algorithm: AlgorithmSettings) -> torch.Tensor:
    """Return the gradient of the summed policy loss over all parameters. Shape: (P,)."""
    policy = PolicyModel(model)
    policy.zero_grad()
    for batch in batches:
        inputs = loss_inputs(policy(batch), batch, has_old_logp=True)
        policy_loss(inputs, algorithm).loss.backward()
    return torch.cat([parameter.grad.flatten() for parameter in policy.parameters()])


row_shapes = st.lists(st.tuples(st.integers(1, 30), st.integers(0, 12), st.integers(0, 3)), min_size=1, max_size=20)


@settings(max_examples=60, deadline=None)
@given(row_shapes, st.integers(1, 120), st.booleans())
def test_every_row_once_within_the_budget(shapes: list[tuple[int, int, int]], budget: int, together: bool) -> None:
    rows = [Row((1,) * p, tuple(range(2, 2 + n)), (0, member)) for p, n, member in shapes]
    batches = pack(rows, budget, keep_trajectories_together=together)
    assert_spans(batches, rows)
    for batch in batches:
        one_unit = len({rows[row].trajectory for row in batch.rows}) == 1 if together else len(batch.rows) == 1
        assert batch.input_ids.numel() <= budget or one_unit
    if together:
        homes: dict[tuple[int, int], set[int]] = {}
        for at, batch in enumerate(batches):
            for row in batch.rows:
                homes.setdefault(rows[row].trajectory, set()).add(at)
        assert all(len(home) == 1 for home in homes.values())


def test_layout_of_one_micro_batch() -> None:
    rows = [
        Row((5, 6, 7), (8, 9), (0, 0), (-1.0, -2.0), (-3.0, -4.0), advantage=2.0, weight=0.5),
        Row((5,), (), (0, 1), value_weight=1.0, return_=3.0),
        Row((5, 6), (7,), (0, 0), (-5.0,), (-6.0,), (-7.0,), advantage=-1.0, weight=0.25),
    ]
    (batch,) = pack(rows, 100, pad_id=99)
    assert batch.rows == (0, 2, 1)
    assert batch.input_ids.tolist() == [[5, 6, 7, 8, 9], [5, 6, 7, 99, 99], [5, 99, 99, 99, 99]]
    assert batch.token_index.tolist() == [2, 3, 6]  # the last prompt token predicts the first response token
    assert batch.targets.tolist() == [8, 9, 7]
    assert batch.old_logp.tolist() == [-3.0, -4.0, -6.0]
    assert batch.advantage.tolist() == [2.0, 2.0, -1.0]
    assert batch.weight.tolist() == [0.5, 0.5, 0.25]
    assert batch.step.tolist() == [0, 0, 1]
    assert batch.trajectory.tolist() == [0, 0, 0]
    assert (batch.n_steps, batch.n_trajectories) == (3, 2)
    assert batch.prompt_end.tolist() == [2, 6, 10]
    assert batch.returns.tolist() == [0.0, 0.0, 3.0]
    assert batch.ref_logp is None  # one row has none


def test_results_come_back_in_the_rows_own_order() -> None:
    rows = make_rows()
    batches = equalize(pack(rows, 40), 20)
    tokens = split_tokens(batches, [batch.targets.float() for batch in batches], len(rows))
    assert tokens == [tuple(map(float, row.response_ids)) for row in rows]
    ends = split_rows(batches, [batch.input_ids.flatten()[batch.prompt_end] for batch in batches], len(rows))
    assert ends == [float(row.prompt_ids[-1]) for row in rows]


@pytest.mark.parametrize(("ratio", "aggregation"), [("token", "token_mean"), ("step", "step_mean")])
def test_one_by_eight_two_by_four_eight_by_one(tiny_model: Any, ratio: Any, aggregation: Any) -> None:
    algorithm = resolve(AlgorithmConfig(preset="ppo", ratio=ratio, aggregation=aggregation), OptimizerConfig(epochs=2))
    rows = _weighted(make_rows(empty=False), aggregation)
    cuts = [[[0, 1, 2, 3, 4, 5, 6, 7]], [[0, 3, 5, 6], [1, 2, 4, 7]], [[at] for at in range(8)]]
    whole, *others = [
        gradient(tiny_model, [pack([rows[at] for at in part], 10_000)[0] for part in cut], algorithm) for cut in cuts
    ]
    assert whole.abs().max() > 1e-4
    for other in others:
        torch.testing.assert_close(other, whole, rtol=1e-4, atol=1e-7)


def test_trajectory_ratio_needs_its_rows_together(tiny_model: Any) -> None:
    algorithm = resolve(AlgorithmConfig(preset="gspo", clip_low=0.9, clip_high=9.0), OptimizerConfig())
    rows = _weighted(make_rows(empty=False), "trajectory_mean")
    whole = gradient(tiny_model, pack(rows, 10_000), algorithm)
    together = gradient(tiny_model, pack(rows, 1, keep_trajectories_together=True), algorithm)
    torn = gradient(tiny_model, pack(rows, 1), algorithm)
    torch.testing.assert_close(together, whole, rtol=1e-4, atol=1e-7)
    assert (torn - whole).abs().max() > 1e-4


def test_padding_changes_no_gradient(tiny_model: Any) -> None:
    algorithm = resolve(AlgorithmConfig(preset="ppo"), OptimizerConfig())
    rows = make_rows()
    exact = gradient(tiny_model, [batch for row in rows for batch in pack([row], 1)], algorithm)
    long = Row(tuple(range(3, 200)), (), (9, 9))
    padded = gradient(tiny_model, pack([*rows, long], 100_000, pad_id=7), algorithm)
    torch.testing.assert_close(padded, exact, rtol=1e-4, atol=1e-7)


def test_fillers_train_nothing(tiny_model: Any) -> None:
    algorithm = resolve(AlgorithmConfig(preset="ppo"), OptimizerConfig())
    assert not gradient(tiny_model, [filler()], algorithm).any()
    batches = equalize(pack(make_rows(), 50), 9)
    assert len(batches) == 9
    assert_spans(batches, make_rows())
    assert filler().value_weight.tolist() == [0.0]


@pytest.mark.parametrize("field", ["input_ids", "targets"])
def test_one_corrupted_token_is_found(field: str) -> None:
    rows = make_rows()
    batches = pack(rows, 60)
    assert_spans(batches, rows)
    tensor = getattr(batches[1], field).clone()
    flat = tensor.flatten()
    flat[batches[1].token_index[2] + 1 if field == "input_ids" else 2] += 1
    batches[1] = dataclasses.replace(batches[1], **{field: flat.view_as(tensor)})
    with pytest.raises(SpanMismatchError, match=r"token \d+ of the response in row \d+ \(group \d, member \d\)"):
        assert_spans(batches, rows)


def test_a_corrupted_prompt_or_padding_carries_no_loss() -> None:
    rows = make_rows()
    batches = pack(rows, 60)
    batches[0].input_ids[0, 0] += 1
    assert_spans(batches, rows)


def test_lost_and_repeated_rows_are_found() -> None:
    rows = make_rows()
    batches = pack(rows, 60)
    with pytest.raises(SpanMismatchError, match="rows were packed"):
        assert_spans(batches[1:], rows)
    with pytest.raises(SpanMismatchError, match="rows were packed"):
        assert_spans([*batches, batches[0]], rows)


def test_rows_that_do_not_fit_together_are_refused() -> None:
    with pytest.raises(SpanMismatchError, match="2 response ids but 1 values in old_logp"):
        pack([Row((1,), (2, 3), (0, 0), old_logp=(0.0,))], 10)
    with pytest.raises(SpanMismatchError, match="the prompt is empty"):
        pack([Row((), (2, 3), (0, 0))], 10)
    with pytest.raises(ConfigError, match="micro_batch_tokens = 0"):
        pack(make_rows(), 0)


def _weighted(rows: list[Row], aggregation: Any) -> list[Row]:
    lengths: dict[tuple[int, int], list[int]] = {}
    for row in rows:
        lengths.setdefault(row.trajectory, []).append(len(row.response_ids))
    weights = token_weights(list(lengths.values()), aggregation)
    flat = [weight for trajectory in weights for weight in trajectory]
    return [dataclasses.replace(row, weight=weight) for row, weight in zip(rows, flat, strict=True)]


def continued(rows: list[Row]) -> list[Row]:
    """Let each second step of a trajectory begin with the whole first one, as an appended conversation does."""
    return [
        dataclasses.replace(row, prompt_ids=rows[at - 1].prompt_ids + rows[at - 1].response_ids + row.prompt_ids)
        if at % 2
        else row
        for at, row in enumerate(rows)
    ]


@pytest.mark.parametrize("ratio", ["token", "step", "trajectory"])
def test_merged_lines_are_the_same_function(tiny_model: Any, ratio: Any) -> None:
    algorithm = resolve(AlgorithmConfig(preset="ppo", ratio=ratio), OptimizerConfig(epochs=2))
    rows = _weighted(continued(make_rows(empty=False)), "token_mean")
    rows[5] = dataclasses.replace(rows[5], prompt_ids=rows[5].prompt_ids[1:])  # a rewritten context does not merge
    together = ratio == "trajectory"
    apart, merged = (pack(rows, 500, keep_trajectories_together=together, packing=flag) for flag in ("rows", "merged"))
    assert_spans(merged, rows)
    assert [sum(len(batch.input_ids) for batch in found) for found in (apart, merged)] == [8, 5]
    expected, found = gradient(tiny_model, apart, algorithm), gradient(tiny_model, merged, algorithm)
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-7)


def test_merged_rows_with_an_empty_response(tiny_model: Any) -> None:
    algorithm = resolve(AlgorithmConfig(preset="ppo"), OptimizerConfig())
    rows = continued(make_rows())
    apart, merged = (gradient(tiny_model, pack(rows, 500, packing=flag), algorithm) for flag in ("rows", "merged"))
    torch.testing.assert_close(merged, apart, rtol=1e-4, atol=1e-7)
