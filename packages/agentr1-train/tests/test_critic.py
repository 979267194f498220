"""The critic reads one value a step, before the response exists."""

import dataclasses
from pathlib import Path

import pytest
import torch
from agentr1_train.batch import Row, pack, split_rows
from agentr1_train.config import ModelConfig
from agentr1_train.critic import CriticModel, ValueHead, load_critic

ROWS = [Row((5, 6, 7, 8), (9, 10, 11), (0, 0)), Row((3,), (4, 300), (0, 1)), Row((30, 31, 32), (), (1, 0))]


@pytest.fixture
def critic(tiny_model_dir: Path) -> CriticModel:
    """A critic whose head was moved away from zero."""
    model = load_critic(ModelConfig(path=str(tiny_model_dir)))
    torch.manual_seed(1)
    torch.nn.init.normal_(model.head.weight)
    torch.nn.init.normal_(model.head.bias)
    return model


def values(critic: CriticModel, rows: list[Row]) -> list[float]:
    batches = pack(rows, 8)
    return split_rows(batches, [critic(batch) for batch in batches], len(rows))


def test_value_at_the_last_prompt_token(critic: CriticModel) -> None:
    want = []
    for row in ROWS:
        hidden = critic.backbone(input_ids=torch.tensor([row.prompt_ids])).last_hidden_state[0, -1]
        want.append((hidden @ critic.head.weight[0] + critic.head.bias[0]).item())
    assert values(critic, ROWS) == pytest.approx(want, rel=1e-5)
    assert len(set(want)) == 3


def test_the_response_is_not_read(critic: CriticModel) -> None:
    other = [dataclasses.replace(row, response_ids=(17, 18)) for row in ROWS]
    assert values(critic, other) == pytest.approx(values(critic, ROWS), rel=1e-5)


def test_first_values_are_zero_and_learn(tiny_model_dir: Path) -> None:
    critic = load_critic(ModelConfig(path="nowhere", critic_path=str(tiny_model_dir)))
    assert values(critic, ROWS) == [0.0, 0.0, 0.0]
    optimizer = torch.optim.Adam(critic.parameters(), lr=1e-2)
    (batch,) = pack(ROWS, 100)
    targets = torch.tensor([1.0, -1.0, 0.5])
    for _ in range(60):
        optimizer.zero_grad()
        loss = (critic(batch) - targets).square().mean()
        loss.backward()
        optimizer.step()
    assert loss.item() < 0.01


def test_no_language_model_head(critic: CriticModel) -> None:
    names = [name for name, _ in critic.named_parameters()]
    assert not any("lm_head" in name for name in names)
    assert {"head.weight", "head.bias", "backbone.embed_tokens.weight"} <= set(names)


def test_half_precision_values_are_float32() -> None:
    head = ValueHead(4).bfloat16()
    assert head(torch.ones(2, 4, dtype=torch.bfloat16)).dtype == torch.float32


def test_values_in_a_merged_line(critic: CriticModel) -> None:
    first = Row((5, 6, 7, 8), (9, 10, 11), (0, 0))
    second = Row((*first.prompt_ids, *first.response_ids, 12, 13), (14,), (0, 0))
    rows = [first, second, ROWS[1]]
    apart, merged = (pack(rows, 100, packing=flag) for flag in ("rows", "merged"))
    assert [len(batch.input_ids) for batch in (*apart, *merged)] == [3, 2]
    found = [split_rows(batches, [critic(batch) for batch in batches], 3) for batches in (apart, merged)]
    assert found[1] == pytest.approx(found[0], rel=1e-5)
    assert len(set(found[0])) == 3
