"""What the tests run under the ``deepspeed`` launcher, on two ranks, and in the test process, on one.

    deepspeed --num_accelerators 2 --no_local_rank ranks_script.py OUT MODEL_FOLDER

Each rank writes everything it saw to OUT/rank_N.pt; the tests compare.
"""

import dataclasses
import os
import random
import sys
import weakref
from pathlib import Path
from typing import Any

import torch
from agentr1_train import distributed
from agentr1_train.batch import MicroBatch, Packing, Row, assert_spans, pack, split_rows, split_tokens
from agentr1_train.checkpoint import export_policy, latest, load_checkpoint, save_checkpoint
from agentr1_train.config import AlgorithmConfig, CheckpointConfig, EngineConfig, ModelConfig, OptimizerConfig, Recipe
from agentr1_train.critic import load_critic
from agentr1_train.engine import build
from agentr1_train.engine.deepspeed import AdapterFree, DeepSpeedEngine, FrozenModel
from agentr1_train.errors import CheckpointError, NonFiniteLossError
from agentr1_train.losses import LossOutput, policy_loss, token_weights, value_loss
from agentr1_train.policy import load_policy, load_reference
from agentr1_train.presets import resolve
from agentr1_train.update import loss_inputs
from agentr1_train.weight_sync import policy_weights
from transformers import AutoTokenizer

STAGES = (0, 1, 2, 3)
UPDATES = 3
LR = 1e-5
SETTINGS = resolve(AlgorithmConfig(preset="ppo", entropy_coef=0.0), OptimizerConfig(epochs=2))
FAR = 1e-3
"""A learning rate at which a difference would show."""


def all_rows() -> list[Row]:
    """Twelve ragged rows of six trajectories in three groups; one response is empty. The same on every rank.

    The prompts of a group begin alike.
    """
    draw = random.Random(0)
    tasks = [tuple(draw.randrange(320) for _ in range(8)) for _ in range(3)]
    rows = []
    for at in range(12):
        prompt = (*tasks[at // 4], *(draw.randrange(320) for _ in range(draw.randint(3, 24))))
        response = tuple(draw.randrange(320) for _ in range(0 if at == 5 else draw.randint(1, 10)))
        advantage, value = draw.uniform(-1, 1), draw.uniform(-1, 1)
        rows.append(Row(prompt, response, (at // 4, at // 2 % 2), advantage=advantage, return_=value))
    trained = sum(bool(row.response_ids) for row in rows)
    weights = token_weights([[len(row.response_ids) for row in rows]], "token_mean")[0]
    return [
        dataclasses.replace(row, weight=weight, value_weight=1 / trained if row.response_ids else 0.0)
        for row, weight in zip(rows, weights, strict=True)
    ]


def my_rows() -> list[Row]:
    """This rank's rows: on two ranks the first has four of them and more micro-batches to make of the rest."""
    rows = all_rows()
    if distributed.world_size() == 1:
        return rows
    return rows[4:] if distributed.rank() == 0 else rows[:4]


def loss_of_policy(output: Any, batch: MicroBatch) -> LossOutput:
    return policy_loss(loss_inputs(output, batch, has_old_logp=True), SETTINGS)


def loss_of_critic(values: Any, batch: MicroBatch) -> LossOutput:
    return value_loss(values, batch.old_value, batch.returns, batch.value_weight, SETTINGS)


def make_engine(
    model: str, stage: Any, dtype: Any = "fp32", packing: Packing = "rows", lora: int = 0, checkpointing: bool = False
) -> tuple[DeepSpeedEngine, Recipe]:
    recipe = Recipe(
        model=ModelConfig(path=model, lora_rank=lora, gradient_checkpointing=checkpointing),
        engine=EngineConfig(zero_stage=stage, dtype=dtype, micro_batch_tokens=64, packing=packing),
        checkpoint=CheckpointConfig(keep=2),
    )
    device = distributed.init("cpu")
    policy = load_policy(recipe.model, dtype, packing=packing)
    return DeepSpeedEngine(policy, recipe.engine, recipe.optimizer, device), recipe


def evaluated(engine: DeepSpeedEngine, rows: list[Row]) -> list[Row]:
    """Rows with the policy's present log-probabilities as the old ones and the sampler's."""
    batches = pack(rows, 64, packing=engine.settings.packing)
    spans = split_tokens(batches, [logp for logp, _ in engine.evaluate(batches)], len(rows))
    return [dataclasses.replace(row, old_logp=span, sampler_logp=span) for row, span in zip(rows, spans, strict=True)]


def update(engine: DeepSpeedEngine, rows: list[Row], lr: float = LR, budget: int = 64) -> dict[str, float]:
    batches = pack(rows, budget, packing=engine.settings.packing)
    assert_spans(batches, rows)
    sums = engine.forward_backward(batches, loss_of_policy)
    return sums | engine.optim_step(lr)


def weights_of(engine: DeepSpeedEngine) -> dict[str, torch.Tensor]:
    return {name: tensor.to("cpu", copy=True) for name, tensor in policy_weights(engine)}


def train(
    model: str,
    stage: int,
    dtype: str = "fp32",
    budget: int = 64,
    packing: Packing = "rows",
    checkpointing: bool = False,
) -> dict[str, Any]:
    """Three updates: what they reported, and the weights after them."""
    engine, _ = make_engine(model, stage, dtype, packing, checkpointing=checkpointing)
    rows = evaluated(engine, my_rows())
    reports = [update(engine, rows, budget=budget) for _ in range(UPDATES)]
    return {"reports": reports, "weights": weights_of(engine), "passes": len(pack(rows, budget, packing=packing))}


def rank_without_rows(model: str, stage: int) -> list[float]:
    """One update in which only rank 0 has rows."""
    engine, _ = make_engine(model, stage)
    rows = all_rows() if distributed.is_main() else []
    report = update(engine, evaluated(engine, rows))
    return [report["policy/loss"], report["grad_norm"]]


def broken_loss(model: str, stage: int) -> dict[str, Any]:
    """The last rank meets a NaN; every rank must stop, with one message, and no weight may move."""
    engine, _ = make_engine(model, stage)
    rows = evaluated(engine, my_rows())
    before = weights_of(engine)
    if distributed.rank() == distributed.world_size() - 1:
        rows[0] = dataclasses.replace(rows[0], advantage=float("nan"))
    message = ""
    try:
        update(engine, rows)
    except NonFiniteLossError as error:
        message = str(error)
    after = weights_of(engine)
    return {"message": message, "same": all(torch.equal(before[name], after[name]) for name in before)}


def trio(model: str, stage: Any) -> dict[str, Any]:
    """Policy, critic and frozen reference in one process."""
    policy, recipe = make_engine(model, stage)
    device = distributed.init("cpu")
    critic = DeepSpeedEngine(load_critic(recipe.model), recipe.engine, recipe.optimizer, device, name="critic")
    frozen = load_reference(recipe.model)
    reference = FrozenModel(frozen, recipe.engine, device)
    rows = evaluated(policy, my_rows())
    batches = pack(rows, 64)
    losses, moved = [], []
    for _ in range(UPDATES):
        update(policy, rows, FAR)
        losses.append(critic.forward_backward(batches, loss_of_critic)["critic/loss"])
        critic.optim_step(FAR)
        moved.append(_of_reference(policy, rows))
    still = _of_reference(reference, rows)
    values = split_rows(batches, critic.evaluate(batches), len(rows))
    closed = [weakref.ref(policy.module), weakref.ref(frozen)]
    del frozen
    policy.close()
    reference.close()
    return {
        "critic_losses": losses,
        "policy_moved": moved,
        "reference_moved": still,
        "values": values,
        "freed": [module() is None for module in closed],
        "values_later": split_rows(batches, critic.evaluate(batches), len(rows)),
        "loss_later": critic.forward_backward(batches, loss_of_critic)["critic/loss"],
    }


def _largest_change(spans: list[tuple[float, ...]], rows: list[Row]) -> float:
    pairs = [pair for span, row in zip(spans, rows, strict=True) for pair in zip(span, row.old_logp, strict=True)]
    return max(abs(now - old) for now, old in pairs)


def _of_reference(reference: Any, rows: list[Row]) -> float:
    """How far a reference is from the log-probabilities that the rows began with."""
    batches = pack(rows, 64)
    return _largest_change(split_tokens(batches, [o[0] for o in reference.evaluate(batches)], len(rows)), rows)


def rows_logp(engine: DeepSpeedEngine, rows: list[Row]) -> list[tuple[float, ...]]:
    batches = pack(rows, 64)
    return split_tokens(batches, [output[0] for output in engine.evaluate(batches)], len(rows))


def resume(model: str, stage: int, dtype: str, out: Path, lora: int = 0) -> dict[str, Any]:
    """Two updates, a checkpoint, two more; then again from the checkpoint with an engine made afresh."""
    run_dir = out / f"run_{stage}_{dtype}_{lora}"
    engine, recipe = make_engine(model, stage, dtype, lora=lora)
    rows = evaluated(engine, my_rows())
    for _ in range(2):
        update(engine, rows, FAR)
    folder = save_checkpoint(run_dir, 2, {"policy": engine}, {"update": 2, "kl_coef": 0.1}, recipe)
    drawn = [random.random(), torch.rand(1).item()]
    first = [update(engine, rows, FAR) for _ in range(2)]
    first_weights = weights_of(engine)

    again, _ = make_engine(model, stage, dtype, lora=lora)
    update(again, rows, FAR)
    found = latest(run_dir)
    assert found is not None
    state = load_checkpoint(found, {"policy": again}, recipe)
    drawn_again = [random.random(), torch.rand(1).item()]
    second = [update(again, rows, FAR) for _ in range(2)]
    second_weights = weights_of(again)

    refusal = ""
    try:
        load_checkpoint(found, {"policy": again}, dataclasses.replace(recipe, seed=7))
    except CheckpointError as error:
        refusal = str(error)
    exported = export_policy(again, AutoTokenizer.from_pretrained(model), run_dir / "model")
    return {
        "folder": str(folder),
        "found": str(found),
        "state": state,
        "reports": (first, second),
        "drawn": (drawn, drawn_again),
        "same_weights": all(torch.equal(first_weights[name], second_weights[name]) for name in first_weights),
        "refusal": refusal,
        "exported": str(exported),
        "base_moved": _of_reference(AdapterFree(again), rows) if lora else 0.0,
        "logp": rows_logp(again, rows),
        "weights": second_weights,
    }


def collectives() -> dict[str, Any]:
    rank = distributed.rank()
    return {
        "rank": rank,
        "world": distributed.world_size(),
        "local": (distributed.local_rank(), distributed.local_world_size()),
        "main": distributed.is_main(),
        "gathered": distributed.all_gather_object({"rank": rank, "text": "x" * rank}),
        "from_one": distributed.broadcast_object(f"rank {rank}", source=distributed.world_size() - 1),
        "sum": distributed.all_reduce({"b": 1.0 + rank, "a": 0.1}),
        "max": distributed.all_reduce({"b": float(rank)}, "max"),
        "min": distributed.all_reduce({"b": float(rank)}, "min"),
        "threads": torch.get_num_threads(),
    }


def buffers() -> dict[str, list[str]]:
    """DeepSpeed's all-reduce buffers of this run: which have a name in shared memory, which this rank has mapped."""
    port = os.environ["MASTER_PORT"]
    named = [path.name for path in build.SHARED_MEMORY.glob(f"deepspeed_allreduce_buffer_*_{port}_*")]
    maps = Path("/proc/self/maps").read_text().splitlines()
    return {"named": named, "mapped": [line for line in maps if "deepspeed_allreduce_buffer" in line]}


def main(out: Path, model: str) -> None:
    distributed.init("cpu")
    result: dict[str, Any] = {"collectives": collectives()}
    for stage in STAGES:
        result[f"train_{stage}"] = train(model, stage)
        result[f"trees_{stage}"] = train(model, stage, packing="tree")
        result[f"checkpointed_{stage}"] = train(model, stage, packing="tree", checkpointing=True)
        result[f"without_rows_{stage}"] = rank_without_rows(model, stage)
        result[f"broken_{stage}"] = broken_loss(model, stage)
    for stage in (0, 2, 3):
        result[f"trio_{stage}"] = trio(model, stage)
    for stage, dtype in ((0, "fp32"), (2, "fp32"), (2, "bf16"), (3, "fp32")):
        result[f"resume_{stage}_{dtype}"] = resume(model, stage, dtype, out)
    for stage, dtype in ((0, "fp32"), (2, "fp32"), (2, "bf16"), (3, "fp32")):
        result[f"lora_{stage}_{dtype}"] = resume(model, stage, dtype, out, lora=4)
    result["buffers"] = buffers()
    torch.save(result, out / f"rank_{distributed.rank()}.pt")
    distributed.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
