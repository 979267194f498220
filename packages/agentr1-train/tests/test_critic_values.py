"""The critic on steps and on tokens: the same value where both read, and a loss that nothing about packing changes."""

from dataclasses import replace
from typing import Any

import pytest
import torch
from agentr1_train.algorithm_config import AlgorithmConfig
from agentr1_train.batch import MicroBatch, Packing, Row, filler, pack
from agentr1_train.config import EngineConfig, ModelConfig, OptimizerConfig
from agentr1_train.critic import CriticModel, load_critic
from agentr1_train.critic_values import critic_loss, critic_rows, critic_values
from agentr1_train.losses import value_loss
from agentr1_train.presets import AlgorithmSettings, resolve

ROWS = [
    Row((5, 6, 7), (8, 9), (0, 0), sampler_logp=(-1.0, -1.0)),
    Row((5, 6, 7, 8, 9, 4), (3,), (0, 0)),
    Row((5, 6), (), (0, 1)),
    Row((9, 9, 2, 1), (7, 7, 7, 7), (1, 0)),
]
ENGINE = EngineConfig(micro_batch_tokens=64)


class Plain:
    """An engine without one."""

    def __init__(self, module: CriticModel) -> None:
        self.module = module

    def evaluate(self, batches: list[MicroBatch]) -> list[Any]:
        with torch.no_grad():
            return [self.module(batch) for batch in batches]


def critic(folder: Any, by_token: bool, packing: Packing = "rows") -> CriticModel:
    module = load_critic(ModelConfig(path=str(folder)), packing=packing, by_token=by_token)
    with torch.no_grad():
        module.head.weight.copy_(torch.linspace(-1, 1, module.head.weight.numel()).view_as(module.head.weight))
    return module


def settings(estimator: str) -> AlgorithmSettings:
    return resolve(AlgorithmConfig(preset="ppo", estimator=estimator), OptimizerConfig())


@pytest.mark.parametrize("packing", ["rows", "merged", "tree"])
def test_a_step_has_the_value_of_its_first_token(packing: Any, tiny_model_dir) -> None:
    engine = replace(ENGINE, packing=packing)
    steps: Any = Plain(critic(tiny_model_dir, by_token=False, packing=packing))
    tokens: Any = Plain(critic(tiny_model_dir, by_token=True, packing=packing))
    of_steps = critic_values(steps, ROWS, engine, settings("step_gae"))
    of_tokens = critic_values(tokens, ROWS, engine, settings("token_gae"))
    assert of_tokens.steps == pytest.approx(of_steps.steps, abs=1e-5)  # the empty response has one too
    assert of_steps.tokens == [()] * 4
    assert [len(span) for span in of_tokens.tokens] == [2, 1, 0, 4]
    assert len({round(value, 4) for span in of_tokens.tokens for value in span}) == 7
    # A token's value is what a prompt that ends before it would get.
    asked = Row((5, 6, 7, 8), (), (2, 0))
    (value,) = critic_values(steps, [asked], engine, settings("step_gae")).steps
    assert of_tokens.tokens[0][1] == pytest.approx(value, abs=1e-5)


@pytest.mark.parametrize("estimator", ["step_gae", "token_gae", "bilevel_gae"])
def test_micro_batches_ranks_and_fillers_do_not_change_the_critics_gradient(estimator: str, tiny_model_dir) -> None:
    chosen = settings(estimator)
    module = critic(tiny_model_dir, chosen.by_token)
    rows = [
        replace(
            row,
            old_value=0.3,
            return_=float(at),
            value_weight=1 / 7 if chosen.by_token else float(bool(row.response_ids)) / 3,
            token_values=(0.3,) * len(row.response_ids),
            token_returns=tuple(at + 0.1 * token for token in range(len(row.response_ids))),
        )
        for at, row in enumerate(ROWS)
    ]

    def gradient(batches: list[MicroBatch]) -> torch.Tensor:
        module.zero_grad()
        for batch in batches:
            critic_loss(module(batch), batch, chosen).loss.backward()
        return torch.cat([p.grad.flatten() for p in module.parameters() if p.grad is not None])

    whole = gradient(pack(critic_rows(rows, chosen), 1000))
    assert whole.norm() > 1e-3
    for batches in (
        pack(critic_rows(rows, chosen), 1),
        [*pack(critic_rows(rows, chosen), 1000, pad_id=3), filler()],
        [*pack(critic_rows(rows[2:], chosen), 1000), *pack(critic_rows(rows[:2], chosen), 1000, packing="merged")],
    ):
        torch.testing.assert_close(gradient(batches), whole, rtol=1e-4, atol=1e-5)


def test_the_loss_at_tokens_is_that_of_all_tokens_together() -> None:
    chosen = settings("token_gae")
    (batch,) = pack(
        [
            replace(
                row,
                token_values=(0.5,) * len(row.response_ids),
                token_returns=(2.0,) * len(row.response_ids),
                value_weight=1 / 7,
            )
            for row in ROWS
        ],
        1000,
    )
    values = torch.linspace(0, 1, 7)
    wanted = value_loss(values, torch.full((7,), 0.5), torch.full((7,), 2.0), torch.full((7,), 1 / 7), chosen)
    assert critic_loss(values, batch, chosen).loss == pytest.approx(float(wanted.loss))


def test_the_critic_of_steps_is_given_no_response_and_that_of_tokens_all_of_it() -> None:
    assert [len(row.response_ids) for row in critic_rows(ROWS, settings("step_gae"))] == [0, 0, 0, 0]
    assert [len(row.response_ids) for row in critic_rows(ROWS, settings("token_gae"))] == [2, 1, 0, 4]
