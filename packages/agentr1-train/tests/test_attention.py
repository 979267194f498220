"""Trees are the same function as rows: losses, every gradient, values, in every context and model that is let in."""

import dataclasses
import random
from collections.abc import Callable
from typing import Any

import pytest
import torch
import transformers
from agentr1_train import attention
from agentr1_train.attention import chain_by_chain, use_tree_attention
from agentr1_train.batch import MicroBatch, Packing, Row, assert_spans, filler, pack, split_rows, split_tokens
from agentr1_train.config import AlgorithmConfig, ModelConfig, OptimizerConfig
from agentr1_train.critic import CriticModel
from agentr1_train.errors import ConfigError
from agentr1_train.losses import policy_loss, value_loss
from agentr1_train.policy import PolicyModel, load_policy
from agentr1_train.prefix_tree import Segment, plant
from agentr1_train.presets import resolve
from agentr1_train.update import loss_inputs
from torch.nn.functional import scaled_dot_product_attention

Ids = tuple[int, ...]
SETTINGS = resolve(AlgorithmConfig(preset="ppo"), OptimizerConfig(epochs=2))
SIZES = {
    "vocab_size": 320,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "initializer_range": 0.3,
    "pad_token_id": None,
    "bos_token_id": None,
    "eos_token_id": None,
}
MODELS = {
    "llama": transformers.LlamaConfig(**SIZES),
    "qwen2": transformers.Qwen2Config(**SIZES),
    "qwen3": transformers.Qwen3Config(**SIZES, head_dim=16),
    "smollm2": transformers.LlamaConfig(
        **SIZES | {"hidden_size": 36, "num_attention_heads": 9, "num_key_value_heads": 3}, tie_word_embeddings=True
    ),
}


def make_model(config: Any, dtype: torch.dtype = torch.float32) -> Any:
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(config, dtype=dtype, attn_implementation="sdpa").eval()


def ids(draw: random.Random, low: int, high: int) -> Ids:
    return tuple(draw.randrange(320) for _ in range(draw.randint(low, high)))


def append(history: list[Ids]) -> Ids:
    return tuple(token for part in history for token in part)


def window(history: list[Ids]) -> Ids:
    """The task and the newest two parts."""
    return append(history if len(history) <= 3 else [history[0], *history[-2:]])


def summarise(history: list[Ids]) -> Ids:
    """What is older than two parts became one token."""
    return append(history if len(history) <= 3 else [history[0], (len(history),), *history[-2:]])


def markov(history: list[Ids]) -> Ids:
    return history[-1] if len(history) > 1 else history[0]


CONTEXTS = {"append": append, "window": window, "summarise": summarise, "markov": markov}


def play(
    context: Callable[[list[Ids]], Ids], group_size: int = 4, steps: int = 4, answers: str = "apart", one: bool = False
) -> list[Row]:
    """Rows of two groups. ``answers``: all apart, begun alike, or the same in a group; one token each if asked."""
    draw = random.Random(3)
    rows = []
    for group in range(2):
        task = ids(draw, 5, 9)
        told = [(ids(draw, 1, 1) if one else ids(draw, 2, 6), ids(draw, 1, 5)) for _ in range(steps)]
        for member in range(group_size):
            history: list[Ids] = [task]
            for step in range(draw.randint(2, steps)):
                said, seen = told[step]
                if answers == "apart":
                    said = ids(draw, 1, 1) if one else ids(draw, 1, 6)
                elif answers == "begun":
                    said = said[: draw.randint(1, len(said))] + ids(draw, 0, 2)
                rows.append(make_row(context(history), said, (group, member), draw))
                history += [said, seen]
    return [dataclasses.replace(row, weight=1 / len(rows), value_weight=1 / len(rows)) for row in rows]


def make_row(prompt: Ids, said: Ids, trajectory: tuple[int, int], draw: random.Random) -> Row:
    return Row(
        prompt,
        said,
        trajectory,
        sampler_logp=tuple(draw.uniform(-6, -5) for _ in said),
        old_logp=tuple(draw.uniform(-6, -5) for _ in said),
        ref_logp=tuple(draw.uniform(-6, -5) for _ in said),
        advantage=draw.uniform(-1, 1),
        return_=draw.uniform(-1, 1),
    )


def policy_pass(model: Any, rows: list[Row], packing: Packing, budget: int = 400, settings: Any = SETTINGS) -> Any:
    """Loss, gradient of every parameter, and log-probabilities by row."""
    policy = PolicyModel(model, entropy_grad=True)
    policy.zero_grad()
    together = settings.ratio == "trajectory"
    batches = pack(rows, budget, packing=packing, keep_trajectories_together=together)
    assert_spans(batches, rows)
    outputs = [policy(batch) for batch in batches]
    pairs = zip(outputs, batches, strict=True)
    loss = sum(policy_loss(loss_inputs(output, batch, True), settings).loss for output, batch in pairs)
    loss.backward()
    spans = split_tokens(batches, [logp for logp, _ in outputs], len(rows))
    return loss.detach(), gradients(policy), torch.tensor([value for span in spans for value in span])


def critic_pass(model: Any, rows: list[Row], packing: Packing, budget: int = 400) -> Any:
    """Loss, gradient of every parameter, and values by row."""
    critic = CriticModel(model)
    with torch.no_grad():
        critic.head.weight.copy_(torch.linspace(-0.3, 0.3, critic.head.weight.numel()))
    critic.zero_grad()
    batches = pack(rows, budget, packing=packing)
    outputs = [critic(batch) for batch in batches]
    loss: Any = sum(
        value_loss(values, batch.old_value, batch.returns, batch.value_weight, SETTINGS).loss
        for values, batch in zip(outputs, batches, strict=True)
    )
    loss.backward()
    return loss.detach(), gradients(critic), torch.tensor(split_rows(batches, outputs, len(rows)))


def gradients(module: Any) -> dict[str, torch.Tensor]:
    return {name: parameter.grad for name, parameter in module.named_parameters() if parameter.grad is not None}


def assert_same(found: Any, expected: Any, tolerance: float = 1e-5) -> None:
    """Relative to the largest entry of each tensor, and for the loss, whose terms cancel, to the size of its terms."""
    assert (found[0] - expected[0]).abs() <= tolerance * max(0.1, expected[0].abs().item())
    assert (found[2] - expected[2]).abs().max() <= tolerance * expected[2].abs().max()
    assert found[1].keys() == expected[1].keys()
    for name, other in expected[1].items():
        assert other.abs().max() > 0, name
        assert (found[1][name] - other).abs().max() <= tolerance * other.abs().max(), name


def compare(config: Any, rows: list[Row], budget: int = 400, settings: Any = SETTINGS) -> list[MicroBatch]:
    model = make_model(config)
    expected = policy_pass(model, rows, "rows", settings=settings)
    expected_values = critic_pass(model.model, rows, "rows")
    use_tree_attention(model)
    assert_same(policy_pass(model, rows, "tree", budget, settings), expected)
    assert_same(critic_pass(model.model, rows, "tree", budget), expected_values)
    return pack(rows, budget, packing="tree")


@pytest.mark.parametrize("answers", ["apart", "begun", "same"])
@pytest.mark.parametrize("context", CONTEXTS)
def test_trees_are_the_same_function_as_rows(context: str, answers: str) -> None:
    rows = play(CONTEXTS[context], answers=answers)
    (batch,) = compare(MODELS["llama"], rows)
    assert batch.input_ids.numel() < sum(map(len, rows))
    branches = [segment for segment in batch.segments or () if segment.subtree_end > segment.end]
    in_line = answers == "same" and context in ("append", "markov")  # every row goes on from another, or shares nothing
    assert bool(branches) != in_line


@pytest.mark.parametrize("kind", MODELS)
def test_models(kind: str) -> None:
    compare(MODELS[kind], play(window))


@pytest.mark.parametrize("group_size", [1, 8])
@pytest.mark.parametrize("one", [False, True])
def test_groups_of_one_and_eight_and_steps_of_one_token(group_size: int, one: bool) -> None:
    compare(MODELS["llama"], play(append, group_size, answers="begun", one=one))


def test_one_trajectory_that_only_grows_is_a_plain_sequence() -> None:
    (batch,) = compare(MODELS["llama"], [row for row in play(append, 1) if row.trajectory == (0, 0)])
    assert batch.segments is None


@pytest.mark.parametrize("budget", [1, 30, 80])
def test_trees_within_a_budget(budget: int) -> None:
    rows = play(append)
    batches = compare(MODELS["llama"], rows, budget)
    assert len(batches) > 1
    assert all(batch.input_ids.numel() <= budget or len(batch.rows) == 1 for batch in batches)


@pytest.mark.parametrize("ratio", ["step", "trajectory"])
@pytest.mark.parametrize("budget", [40, 400])
def test_ratios_that_span_several_steps(ratio: Any, budget: int) -> None:
    settings = resolve(AlgorithmConfig(preset="ppo", ratio=ratio, clip_low=0.9, clip_high=9.0), OptimizerConfig())
    compare(MODELS["llama"], play(markov), budget, settings)


def test_empty_responses_and_bare_prompts() -> None:
    rows = play(append)
    rows = [
        dataclasses.replace(row, response_ids=(), sampler_logp=(), old_logp=(), ref_logp=()) for row in rows[::2]
    ] + [*rows[1::2]]
    compare(MODELS["llama"], rows)
    model = make_model(MODELS["llama"])
    use_tree_attention(model)
    silent = [row for row in rows if not row.response_ids]
    (batch,) = pack(silent, 400, packing="tree")
    logp, _ = PolicyModel(model)(batch)
    assert logp.shape == (0,)
    logp.sum().backward()
    assert all(parameter.grad is not None and not parameter.grad.any() for parameter in model.parameters())


def test_identical_responses_are_computed_once() -> None:
    """Every row of a group is the same: the tree has the tokens of one, and the logits of one."""
    model, rows = make_model(MODELS["llama"]), [play(append)[0]] * 8
    use_tree_attention(model)
    (batch,) = pack(rows, 400, packing="tree")
    assert batch.input_ids.numel() == len(rows[0])
    seen = []
    model.lm_head.register_forward_hook(lambda _module, _args, output: seen.append(output.shape[1]))
    assert len(PolicyModel(model)(batch)[0]) == 8 * len(rows[0].response_ids)
    assert seen == [len(rows[0].response_ids)]


def test_bf16_within_rounding() -> None:
    rows = play(window)
    exact, half = make_model(MODELS["llama"]), make_model(MODELS["llama"], torch.bfloat16)
    want = policy_pass(exact, rows, "rows")
    in_rows = policy_pass(half, rows, "rows")
    use_tree_attention(half)
    in_tree = policy_pass(half, rows, "tree")
    for name in want[1]:
        rounding = (in_rows[1][name] - want[1][name]).norm()
        assert (in_tree[1][name] - want[1][name]).norm() <= 1.5 * rounding, name


@pytest.mark.parametrize("shared", [1, 3])
@pytest.mark.parametrize("fallback", [False, True], ids=["flash", "any device"])
def test_attention_against_a_mask(shared: int, fallback: bool) -> None:
    """Output and gradient on a random tree, against dense attention with the tree as its mask."""
    draw = random.Random(1)
    trunk = [draw.randrange(3) for _ in range(80)]
    (tree,) = plant([trunk[: draw.randrange(80)] + [draw.randrange(3) for _ in range(70)] for _ in range(12)], 10_000)
    size = len(tree)
    mask = torch.zeros(size, size, dtype=torch.bool)
    for path in map(torch.from_numpy, tree.paths):
        mask[path[:, None], path[None, :]] |= torch.ones(len(path), len(path), dtype=torch.bool).tril()
    torch.manual_seed(0)
    q = torch.randn(1, 2 * shared, size, 8, dtype=torch.float64, requires_grad=True)
    k, v = (torch.randn(1, 2, size, 8, dtype=torch.float64, requires_grad=True) for _ in range(2))
    weights = torch.randn(1, 2 * shared, size, 8, dtype=torch.float64)
    want = scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=0.7, enable_gqa=True)
    attend = chain_by_chain if fallback else attention._FlashTree.apply
    found: torch.Tensor = attend(q, k, v, tree.segments, 0.7)
    torch.testing.assert_close(found, want)
    expected = torch.autograd.grad(want, (q, k, v), weights)
    for one, other in zip(torch.autograd.grad(found, (q, k, v), weights), expected, strict=True):
        torch.testing.assert_close(one, other)


def test_without_the_kernel_of_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention, "_flash", None)
    compare(MODELS["qwen3"], play(window))


def test_far_scores_are_joined_without_overflow() -> None:
    """A key chain that outweighs another by e^2000 leaves the other's share zero and everything finite."""
    q = torch.tensor([[[[1.0], [1.0], [1.0], [1.0]]]], requires_grad=True)
    k = torch.tensor([[[[2000.0], [0.0], [-2000.0], [1.0]]]], requires_grad=True)
    v = torch.tensor([[[[1.0], [2.0], [3.0], [4.0]]]], requires_grad=True)
    segments = (Segment(0, 1, 4), Segment(1, 2, 2), Segment(2, 4, 4))
    found: torch.Tensor = attention._FlashTree.apply(q, k, v, segments, 1.0)
    assert found.flatten().tolist() == [1.0, 1.0, 1.0, 1.0]
    found.sum().backward()
    assert all(t.grad is not None and t.grad.isfinite().all() for t in (q, k, v))


def test_gradient_checkpointing(tiny_model_dir: Any) -> None:
    rows = play(append)
    found = []
    for checkpointing in (False, True):
        settings = ModelConfig(path=str(tiny_model_dir), gradient_checkpointing=checkpointing)
        policy = load_policy(settings, packing="tree").train()
        found.append(policy_pass(policy.model, rows, "tree"))
    assert_same(found[1], found[0], 1e-6)


def test_a_filler_runs_through_a_model_for_trees() -> None:
    model = make_model(MODELS["llama"])
    use_tree_attention(model)
    logp, _ = PolicyModel(model)(filler())
    assert logp.shape == (0,)
    plain, rows = make_model(MODELS["llama"]), play(append)
    assert_same(policy_pass(model, rows, "rows"), policy_pass(plain, rows, "rows"), 1e-6)


def test_a_tree_in_a_model_that_was_not_told() -> None:
    (batch,) = pack(play(append), 400, packing="tree")
    with pytest.raises(ConfigError, match="would let branches see each other"):
        PolicyModel(make_model(MODELS["llama"]))(batch)


REFUSED = {
    "sliding window": transformers.MistralConfig(**SIZES, sliding_window=8),
    "layers of the kind 'sliding_attention'|sliding window": transformers.Qwen2Config(
        **SIZES, use_sliding_window=True, sliding_window=8, max_window_layers=1
    ),
    "softcap|sliding window": transformers.Gemma2Config(**SIZES, head_dim=8),
    "AttentionInterface": transformers.GPTJConfig(vocab_size=320, n_embd=32, n_layer=1, n_head=4, rotary_dim=8),
    "positions are ALiBi": transformers.BloomConfig(vocab_size=320, hidden_size=32, n_layer=1, n_head=4),
    r"layers of the kind 'linear_attention' \(recurrent\)": transformers.MambaConfig(
        vocab_size=320, hidden_size=32, num_hidden_layers=1
    ),
    "layers of the kind 'conv'": transformers.Lfm2Config(**SIZES, layer_types=["conv", "full_attention"]),
    "ALiBi": transformers.FalconConfig(
        vocab_size=320, hidden_size=32, num_hidden_layers=1, num_attention_heads=4, alibi=True
    ),
}


@pytest.mark.parametrize("reason", REFUSED)
def test_models_that_are_refused(reason: str) -> None:
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(REFUSED[reason])
    with pytest.raises(ConfigError, match=rf"cannot train on prefix trees: .*({reason}).*packing = 'merged'"):
        use_tree_attention(model)


@pytest.mark.parametrize("reason", ["positions are ALiBi", r"layers of the kind 'linear_attention' \(recurrent\)"])
def test_what_attends_in_its_own_way_is_refused_from_a_folder_and_trains_in_lines(reason: str, tmp_path: Any) -> None:
    """In words of this project, not those in which transformers asks for a pull request; and the remedy is one."""
    torch.manual_seed(0)
    transformers.AutoModelForCausalLM.from_config(REFUSED[reason]).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=rf"cannot train on prefix trees: .*({reason}).*packing = 'merged'"):
        load_policy(ModelConfig(path=str(tmp_path)), packing="tree")
    with pytest.raises(ConfigError, match=r"no such attention.*model\.attention = 'eager'.*packing = 'merged'"):
        load_policy(ModelConfig(path=str(tmp_path)), packing="merged")
    model = load_policy(ModelConfig(path=str(tmp_path), attention="eager"), packing="merged").model
    assert_same(policy_pass(model, play(append), "merged"), policy_pass(model, play(append), "rows"), 1e-4)


def test_a_model_that_mixes_tokens_outside_attention_is_found_out() -> None:
    """Nothing in the configuration tells; the trial tree does."""
    model = make_model(MODELS["llama"])
    layer = model.model.layers[0]
    layer.mlp.register_forward_hook(lambda _module, _args, output: output + output.roll(1, dims=1))
    with pytest.raises(ConfigError, match="something beside attention mixes tokens"):
        use_tree_attention(model)


def test_attention_of_another_kind_is_refused(tiny_model_dir: Any) -> None:
    with pytest.raises(ConfigError, match=r"model\.attention = 'eager'"):
        load_policy(ModelConfig(path=str(tiny_model_dir), attention="eager"), packing="tree")
