"""A small causal model made from scratch, tokenizer included, out of the texts of an environment.

For machines without a hub or a GPU: a model of one to ten million parameters that trains in seconds. It is an ordinary
Hugging Face folder (Llama architecture, byte-level BPE, ChatML template), and everything else treats it as any other.
By default every digit is a token of its own, whatever stands beside it: so a small model learns early to reckon.
"""

import asyncio
import itertools
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from agentr1_train.config import Recipe
from agentr1_train.env_pool import EnvPool
from agentr1_train.errors import ConfigError
from agentr1_train.renderer import newest_text
from agentr1_train.rollout import group_seed

TOKENIZER_STREAM = 3
"""Second entry of a seed's key: which tasks the tokenizer reads."""

PAD, START, END = "<|pad|>", "<|im_start|>", "<|im_end|>"

CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@dataclass(frozen=True)
class ModelShape:
    """Shape of the model. The default has about 1.3 million parameters with a vocabulary of 512."""

    hidden: int = 128
    """Width of the residual stream; a multiple of ``heads``."""
    layers: int = 4
    heads: int = 4
    vocabulary: int = 512
    """Upper bound of the vocabulary; the texts may give fewer merges."""
    positions: int = 1024
    """Longest sequence."""
    rope_theta: float = 500.0
    """Base of the rotary embedding. The usual 10,000 spends half of a narrow head on wavelengths beyond short contexts;
    what is to be compared with something a few hundred tokens back needs them."""
    digits: bool = True
    """Whether every digit is a token of its own. Where numbers are names, as in "mug 2", they are better left whole."""
    seed: int = 0
    """Of the initial weights, and of the tasks that the tokenizer reads."""


def train_tokenizer(texts: Iterable[str], vocabulary: int, *, digits: bool = True) -> PreTrainedTokenizerFast:
    """Train a byte-level BPE with the ChatML tokens; with ``digits`` every digit is a token of its own.

    Raises:
        ConfigError: ``vocabulary`` leaves no room for the 256 bytes and the special tokens.
    """
    if vocabulary < 260:
        raise ConfigError(f"vocabulary = {vocabulary}: at least 260 are needed (256 bytes and the special tokens).")
    tokenizer = Tokenizer(models.BPE())
    split = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence([*split, pre_tokenizers.ByteLevel(add_prefix_space=False)])
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, START, END],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    frame = (f"{START}{role}\n{END}\n" for role in ("system", "user", "assistant") for _ in range(100))
    tokenizer.train_from_iterator(itertools.chain(texts, frame), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token=END, pad_token=PAD)
    fast.chat_template = CHAT_TEMPLATE
    return fast


def _token_id(tokenizer: PreTrainedTokenizerFast, token: str) -> int:
    found = tokenizer.convert_tokens_to_ids(token)
    assert isinstance(found, int)
    return found


def init_model(texts: Iterable[str], out: Path, shape: ModelShape) -> int:
    """Write a fresh model and tokenizer to ``out`` and return the number of parameters.

    The folder appears whole or not at all.

    Raises:
        ConfigError: the shape does not fit together, or ``out`` exists and is not empty.
    """
    if shape.hidden % shape.heads:
        raise ConfigError(f"hidden = {shape.hidden} is not a multiple of heads = {shape.heads}.")
    if out.exists() and any(out.iterdir()):
        raise ConfigError(f"{out} is not empty. Remove it, or name another folder.")
    tokenizer = train_tokenizer(texts, shape.vocabulary, digits=shape.digits)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=shape.hidden,
        intermediate_size=shape.hidden * 2,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.heads,
        max_position_embeddings=shape.positions,
        tie_word_embeddings=True,
        rope_parameters={"rope_type": "default", "rope_theta": shape.rope_theta},
        initializer_range=shape.hidden
        ** -0.5,  # transformers' 0.02 suits wide models; narrow ones learn to copy late with it
        bos_token_id=None,
        eos_token_id=_token_id(tokenizer, END),
        pad_token_id=_token_id(tokenizer, PAD),
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(shape.seed)
        model = LlamaForCausalLM(config)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as scratch:
        model.save_pretrained(scratch)
        tokenizer.save_pretrained(scratch)
        if out.exists():
            out.rmdir()
        Path(scratch).rename(out)
        Path(scratch).mkdir()  # the context manager removes it again
    out.chmod(0o755)
    return sum(parameter.numel() for parameter in model.parameters())


def init_model_for(recipe: Recipe, shape: ModelShape, episodes: int) -> int:
    """Make a model at ``recipe.model.path`` from training tasks of the recipe's environment; return its parameters.

    Raises:
        ConfigError: no path, or as ``init_model``.
    """
    if not recipe.model.path:
        raise ConfigError("model.path is empty: name the folder that the new model is written to.")
    with EnvPool(recipe.env) as pool:
        texts = asyncio.run(_environment_texts(pool, shape.seed, episodes))
    return init_model(texts, Path(recipe.model.path), shape)


async def _environment_texts(pool: EnvPool, seed: int, episodes: int) -> list[str]:
    """Return what the environment shows and what its demonstrations say, over ``episodes`` tasks."""
    env = await pool.acquire()
    texts: list[str] = []
    try:
        for index in range(episodes):
            observation, _ = await env.reset(group_seed(seed, 0, index, TOKENIZER_STREAM))
            texts += [env.attributes.system_prompt, newest_text(observation)]
            for action in await env.demonstration() or ():
                observation, _, terminated, truncated, _ = await env.step(action)
                texts += [action, newest_text(observation)]
                if terminated or truncated:
                    break
    finally:
        pool.release(env)
    return texts
