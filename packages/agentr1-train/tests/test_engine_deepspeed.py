"""The engine: ranks, ZeRO stages and micro-batches change nothing; what is not finite stops everybody."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import pytest
import torch
from agentr1_train import distributed
from agentr1_train.batch import pack
from agentr1_train.config import EngineConfig, OptimizerConfig
from agentr1_train.engine.deepspeed import DeepSpeedEngine, FrozenModel
from agentr1_train.errors import DeviceError, NonFiniteLossError
from agentr1_train.losses import LossOutput
from agentr1_train.policy import PolicyModel

pytestmark = pytest.mark.once

STAGES = [0, 1, 2, 3]


@pytest.fixture(scope="module")
def one_rank(ranks_script: Any, tiny_model_dir: Path) -> dict[int, dict[str, Any]]:
    """Three updates on one rank, for every ZeRO stage."""
    distributed.init("cpu")
    return {stage: ranks_script.train(str(tiny_model_dir), stage) for stage in STAGES}


@pytest.fixture(scope="module")
def plain(ranks_script: Any, tiny_model_dir: Path) -> dict[str, Any]:
    """The same three updates in plain PyTorch: AdamW, one backward, no engine."""
    script = ranks_script
    policy = script.load_policy(script.ModelConfig(path=str(tiny_model_dir)))
    rows = script.all_rows()
    (batch,) = pack(rows, 10_000)
    logp = policy(batch)[0].detach()
    batch = dataclasses.replace(batch, old_logp=logp, sampler_logp=logp)
    optimizer = torch.optim.AdamW(policy.parameters(), lr=script.LR, weight_decay=0.0)
    losses, norms = [], []
    for _ in range(script.UPDATES):
        optimizer.zero_grad()
        output = script.loss_of_policy(policy(batch), batch)
        output.loss.backward()
        norms.append(torch.nn.utils.clip_grad_norm_(policy.parameters(), 1.0).item())
        losses.append(output.sums["policy/loss"].item())
        optimizer.step()
    weights = {name.removeprefix("model."): value.detach() for name, value in policy.named_parameters()}
    return {"losses": losses, "norms": norms, "weights": weights}


def check_against(plain: dict[str, Any], seen: dict[str, Any]) -> None:
    assert [report["policy/loss"] for report in seen["reports"]] == pytest.approx(plain["losses"], abs=1e-5)
    assert [report["grad_norm"] for report in seen["reports"]] == pytest.approx(plain["norms"], rel=1e-4)
    assert [report["skipped"] for report in seen["reports"]] == [0.0] * 3
    assert seen["weights"].keys() == plain["weights"].keys()
    for name, want in plain["weights"].items():
        difference = (seen["weights"][name] - want).abs().max().item()
        assert difference < 1e-6, f"{name} differs by {difference}"


@pytest.mark.parametrize("stage", STAGES)
def test_one_rank_is_plain_pytorch(plain: dict[str, Any], one_rank: dict[int, dict[str, Any]], stage: int) -> None:
    assert one_rank[stage]["passes"] > 3
    check_against(plain, one_rank[stage])


@pytest.mark.parametrize("stage", STAGES)
def test_two_ranks_are_plain_pytorch(plain: dict[str, Any], two_ranks: list[dict[str, Any]], stage: int) -> None:
    first, second = (seen[f"train_{stage}"] for seen in two_ranks)
    assert first["passes"] > second["passes"]  # the ranks had different numbers of micro-batches
    check_against(plain, first)
    check_against(plain, second)
    assert first["reports"] == second["reports"]
    assert all(torch.equal(first["weights"][name], second["weights"][name]) for name in first["weights"])


@pytest.mark.parametrize("stage", STAGES)
def test_trees_on_one_rank_and_two(
    plain: dict[str, Any],
    two_ranks: list[dict[str, Any]],
    ranks_script: Any,
    tiny_model_dir: Path,
    stage: int,
) -> None:
    """Prefix trees give what rows in plain PyTorch give; the ranks had different numbers of trees."""
    first, second = (seen[f"trees_{stage}"] for seen in two_ranks)
    assert first["passes"] > second["passes"]
    assert first["passes"] < two_ranks[0][f"train_{stage}"]["passes"]
    alone = ranks_script.train(str(tiny_model_dir), stage, packing="tree")
    for seen in (first, second, alone):
        check_against(plain, seen)


@pytest.mark.parametrize("stage", STAGES)
def test_trees_with_gradient_checkpointing_on_two_ranks(
    plain: dict[str, Any], two_ranks: list[dict[str, Any]], stage: int
) -> None:
    for seen in two_ranks:
        check_against(plain, seen[f"checkpointed_{stage}"])


def test_the_updates_moved_the_weights(plain: dict[str, Any], tiny_model: Any) -> None:
    """Without this, the tests above would pass on an engine that does nothing."""
    start = dict(tiny_model.named_parameters())
    moved = [(plain["weights"][name] - start[name]).abs().max().item() for name in start]
    assert min(moved) > 1e-5


@pytest.mark.parametrize("stage", STAGES)
def test_a_rank_without_rows_keeps_step(plain: dict[str, Any], two_ranks: list[dict[str, Any]], stage: int) -> None:
    for seen in two_ranks:
        loss, norm = seen[f"without_rows_{stage}"]
        assert loss == pytest.approx(plain["losses"][0], abs=1e-5)
        assert norm == pytest.approx(plain["norms"][0], rel=1e-4)


@pytest.mark.parametrize("stage", STAGES)
def test_a_broken_loss_on_one_rank_stops_both(two_ranks: list[dict[str, Any]], stage: int) -> None:
    first, second = (seen[f"broken_{stage}"] for seen in two_ranks)
    assert first["message"] == second["message"]
    assert "the loss of the policy is not finite: rank 1, micro-batch" in first["message"]
    assert first["same"]
    assert second["same"]


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_policy_critic_and_reference_in_one_process(two_ranks: list[dict[str, Any]], stage: int) -> None:
    first, second = (seen[f"trio_{stage}"] for seen in two_ranks)
    for seen in (first, second):
        assert seen["reference_moved"] < 1e-5
        assert seen["policy_moved"] == sorted(seen["policy_moved"])
        assert seen["policy_moved"][0] > 1e-3
        assert any(seen["values"])
    assert first["critic_losses"] == second["critic_losses"]
    assert first["critic_losses"] == sorted(first["critic_losses"], reverse=True)


@pytest.mark.parametrize("stage", [0, 2, 3])
def test_a_closed_engine_is_gone_and_the_others_stay(two_ranks: list[dict[str, Any]], stage: int) -> None:
    """The warm start's engine would keep weights, gradients and optimizer beside the run's own."""
    for seen in (ranks[f"trio_{stage}"] for ranks in two_ranks):
        assert seen["freed"] == [True, True]
        assert seen["values_later"] == seen["values"]
        assert seen["loss_later"] < seen["critic_losses"][-1]


def test_micro_batches_change_no_step(ranks_script: Any, tiny_model_dir: Path, one_rank: dict[int, Any]) -> None:
    whole = ranks_script.train(str(tiny_model_dir), 2, budget=100_000)
    assert whole["passes"] == 1
    assert [report["grad_norm"] for report in whole["reports"]] == pytest.approx(
        [report["grad_norm"] for report in one_rank[2]["reports"]], rel=1e-5
    )
    for name, want in one_rank[2]["weights"].items():
        torch.testing.assert_close(whole["weights"][name], want, rtol=0, atol=1e-6)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_bf16_follows_float32(
    ranks_script: Any, tiny_model_dir: Path, one_rank: dict[int, dict[str, Any]], stage: int
) -> None:
    seen = ranks_script.train(str(tiny_model_dir), stage, "bf16")
    assert {tensor.dtype for tensor in seen["weights"].values()} == {torch.bfloat16}
    norms = [report["grad_norm"] for report in seen["reports"]]
    assert norms == pytest.approx([report["grad_norm"] for report in one_rank[stage]["reports"]], rel=0.05)


@pytest.fixture
def fp16_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    """DeepSpeed's own fp16 path runs on any CPU, slowly; only its word that the CPU computes in fp16 is replaced."""
    distributed.init("cpu")
    from deepspeed.accelerator import get_accelerator

    monkeypatch.setattr(type(get_accelerator()), "is_fp16_supported", lambda self: True)


@pytest.mark.usefixtures("fp16_allowed")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_fp16_follows_float32(
    ranks_script: Any, tiny_model_dir: Path, one_rank: dict[int, dict[str, Any]], stage: int
) -> None:
    seen = ranks_script.train(str(tiny_model_dir), stage, "fp16")
    assert {tensor.dtype for tensor in seen["weights"].values()} == {torch.float16}
    assert [report["skipped"] for report in seen["reports"]] == [0.0] * 3
    norms = [report["grad_norm"] for report in seen["reports"]]
    assert norms == pytest.approx([report["grad_norm"] for report in one_rank[stage]["reports"]], rel=0.02)


@pytest.mark.usefixtures("fp16_allowed")
@pytest.mark.parametrize("stage", [1, 2, 3])
def test_a_step_that_overflows_in_fp16_is_left_out_and_the_scale_lowered(
    ranks_script: Any, tiny_model_dir: Path, stage: int
) -> None:
    """A gradient that fits into fp16 once it is scaled by a few powers of two less."""
    engine, _ = ranks_script.make_engine(str(tiny_model_dir), stage, "fp16")
    before = ranks_script.weights_of(engine)

    def loss(output: Any, batch: Any) -> LossOutput:
        return LossOutput(output[0].sum() * 50.0, {"policy/tokens": torch.tensor(1.0)})

    steps = []
    while not steps or steps[-1]["skipped"]:
        engine.forward_backward(pack(ranks_script.all_rows(), 64), loss)
        steps.append(engine.optim_step(1e-3) | {"scale": float(engine._engine.optimizer.loss_scale)})
        moved = any(not torch.equal(before[name], new) for name, new in ranks_script.weights_of(engine).items())
        assert moved == (not steps[-1]["skipped"])
        assert len(steps) < 20
    assert len(steps) > 2
    assert all(step["grad_norm"] == math.inf for step in steps[:-1])
    assert math.isfinite(steps[-1]["grad_norm"])
    assert steps[-1]["scale"] < steps[0]["scale"]


def test_precision_the_machine_does_not_have(tiny_model: Any) -> None:
    device = distributed.init("cpu")
    settings = EngineConfig(zero_stage=1, dtype="fp16")
    if torch.ops.mkldnn._is_mkldnn_fp16_supported():
        pytest.skip("this CPU computes in fp16")
    with pytest.raises(DeviceError, match=r"engine\.dtype = 'fp16' is not supported"):
        DeepSpeedEngine(PolicyModel(tiny_model), settings, OptimizerConfig(), device)


def test_there_is_nothing_to_offload_from_on_a_cpu(tiny_model: Any) -> None:
    device = distributed.init("cpu")
    settings = EngineConfig(zero_stage=2, offload_optimizer=True)
    with pytest.raises(DeviceError, match=r"offload_optimizer = true on engine\.device = 'cpu'.*Set it to false"):
        DeepSpeedEngine(PolicyModel(tiny_model), settings, OptimizerConfig(), device)


@pytest.mark.parametrize("stage", [1, 2, 3])
def test_an_offloaded_optimizer_is_plain_pytorch(
    plain: dict[str, Any], ranks_script: Any, tiny_model: Any, stage: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """DeepSpeed's own path for it, which runs on a CPU too, though it saves nothing there and is refused."""
    monkeypatch.setattr("agentr1_train.engine.deepspeed._check_offload", lambda *_: None)
    settings = EngineConfig(zero_stage=stage, packing="rows", micro_batch_tokens=64, offload_optimizer=True)
    engine = DeepSpeedEngine(PolicyModel(tiny_model), settings, OptimizerConfig(), distributed.init("cpu"))
    assert engine._engine.zero_cpu_offload() if stage < 3 else engine._engine.zero_offload_optimizer()
    rows = ranks_script.evaluated(engine, ranks_script.all_rows())
    reports = [ranks_script.update(engine, rows) for _ in range(3)]
    check_against(plain, {"reports": reports, "weights": ranks_script.weights_of(engine)})


@pytest.mark.parametrize("stage", STAGES)
def test_a_gradient_that_is_not_finite_changes_nothing(ranks_script: Any, tiny_model_dir: Path, stage: int) -> None:
    """The loss is finite and its gradient is not: d sqrt(x) / dx at 0."""
    engine, _ = ranks_script.make_engine(str(tiny_model_dir), stage)
    before = ranks_script.weights_of(engine)

    def loss(output: Any, batch: Any) -> LossOutput:
        return LossOutput((output[0] * 0).sum().sqrt(), {"policy/tokens": torch.tensor(1.0)})

    engine.forward_backward(pack(ranks_script.all_rows(), 64), loss)
    with pytest.raises(NonFiniteLossError, match="the gradient of the policy is not finite though its loss was"):
        engine.optim_step(1e-2)
    after = ranks_script.weights_of(engine)
    assert all(torch.equal(before[name], after[name]) for name in before)


@pytest.mark.parametrize("stage", STAGES)
def test_clipping_bounds_the_step_and_reports_the_norm_before(tiny_model: Any, ranks_script: Any, stage: Any) -> None:
    """AdamW forgets the scale of a gradient, unless eps is as large as the clipped gradient: then a bound shows."""
    device = distributed.init("cpu")
    settings = EngineConfig(zero_stage=stage, packing="rows")
    norms = []
    for bound in (0.0, 1e-3):
        model = type(tiny_model)(tiny_model.config)
        model.load_state_dict(tiny_model.state_dict())
        constants = OptimizerConfig(max_grad_norm=bound, eps=1e-3)
        engine = DeepSpeedEngine(PolicyModel(model), settings, constants, device)
        rows = ranks_script.evaluated(engine, ranks_script.all_rows())
        before = ranks_script.weights_of(engine)
        norms.append(ranks_script.update(engine, rows, lr=1e-2)["grad_norm"])
        after = ranks_script.weights_of(engine)
        largest = max((after[name] - before[name]).abs().max().item() for name in before)
        assert (largest < 6e-3) == (bound > 0)
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)
    assert norms[0] > 0.01


def test_learning_rate_is_set_for_each_step(ranks_script: Any, tiny_model_dir: Path) -> None:
    engine, _ = ranks_script.make_engine(str(tiny_model_dir), 2)
    rows = ranks_script.evaluated(engine, ranks_script.all_rows())
    before = ranks_script.weights_of(engine)
    assert ranks_script.update(engine, rows, lr=0.0)["grad_norm"] > 0
    still = ranks_script.weights_of(engine)
    assert all(torch.equal(before[name], still[name]) for name in before)
    ranks_script.update(engine, rows, lr=1e-3)
    moved = ranks_script.weights_of(engine)
    assert all(not torch.equal(before[name], moved[name]) for name in before)


def test_evaluation_leaves_no_gradient(ranks_script: Any, tiny_model_dir: Path) -> None:
    engine, _ = ranks_script.make_engine(str(tiny_model_dir), 0)
    (logp, _entropy), *rest = engine.evaluate(pack(ranks_script.all_rows(), 64))
    assert not logp.requires_grad
    assert rest
    assert engine.module.training
    rows = ranks_script.evaluated(engine, ranks_script.all_rows())
    assert ranks_script.update(engine, rows)["grad_norm"] > 0


@pytest.mark.parametrize("stage", [0, 3])
def test_a_frozen_model_is_the_model(tiny_model: Any, ranks_script: Any, stage: Any) -> None:
    device = distributed.init("cpu")
    batches = pack(ranks_script.all_rows(), 64)
    with torch.no_grad():
        want = [PolicyModel(tiny_model)(batch)[0] for batch in batches]
    frozen = FrozenModel(PolicyModel(tiny_model), EngineConfig(zero_stage=stage), device)
    for (logp, _), expected in zip(frozen.evaluate(batches), want, strict=True):
        torch.testing.assert_close(logp, expected, rtol=1e-5, atol=1e-6)
