"""Fixtures: the shared data, a model of a few thousand parameters with its tokenizer, a stranger's environment."""

import importlib.util
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gymnasium
import pytest
import torch
from hypothesis import HealthCheck, settings
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import (
    AutoTokenizer,
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedTokenizerFast,
    Qwen2Config,
    Qwen2ForCausalLM,
)

os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
torch.set_num_threads(1)  # the models are tiny: threads would only wait for each other

# A busy machine is not a fault of the code under test.
settings.register_profile("unhurried", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("unhurried")

CHATML = (
    "{% if tools %}{{ '<|im_start|>system\n# Tools\n' }}{% for tool in tools %}{{ (tool | tojson) + '\n' }}{% endfor %}"
    "{{ '<|im_end|>\n' }}{% endif %}"
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
"""The template of Qwen and SmolLM2 in short."""

TEXTS = [
    "system user assistant the tool says 0 1 2 3 4 5 6 7 8 9 + - * / = what is the answer to the question?",
    '<tool_call>{"name": "calculator", "arguments": {"expression": "12 + 30"}}</tool_call>',
    "<answer>42</answer> <think>let us see</think> echo state observation step left right up down",
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The first test that asks for two ranks waits for all that they do, so these are slow: one launch serves all."""
    for item in items:
        if "two_ranks" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.slow)
            item.add_marker(pytest.mark.ranks)
            item.add_marker(pytest.mark.timeout(1500))


def make_tokenizer(chat_template: str | None = CHATML) -> PreTrainedTokenizerFast:
    """A byte-level BPE that can write anything."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=320,
        special_tokens=["<|pad|>", "<|im_start|>", "<|im_end|>"],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(TEXTS, trainer)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<|pad|>", eos_token="<|im_end|>")
    wrapped.chat_template = chat_template
    return wrapped


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_interrupts() -> None:
    """A shell that starts the tests in the background makes them deaf to SIGINT, which some of them send."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def shared() -> Path:
    """Folder of shared data: AGENTR1_SHARED, or ``shared`` beside the repository. Missing: skip, or fail in CI."""
    folder = Path(os.environ.get("AGENTR1_SHARED", Path(__file__).resolve().parents[4] / "shared"))
    if not folder.is_dir():
        message = f"no shared data at {folder}; set AGENTR1_SHARED"
        if os.environ.get("CI") == "true":
            pytest.fail(message)
        pytest.skip(message)
    return folder


@pytest.fixture
def make_model() -> Callable[[str], Any]:
    """Make a small model of a kind: the same weights at each call."""
    small: dict[str, Any] = {
        "vocab_size": 320,
        "hidden_size": 32,
        "intermediate_size": 64,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "initializer_range": 0.3,
    }

    def make(kind: str) -> Any:
        torch.manual_seed(2)
        if kind == "gpt2":
            config = GPT2Config(vocab_size=320, n_positions=256, n_embd=32, n_layer=2, n_head=4, initializer_range=0.3)
            return GPT2LMHeadModel(config).eval()
        if kind == "qwen2_sliding":
            window = {"use_sliding_window": True, "sliding_window": 7, "max_window_layers": 2}
            return Qwen2ForCausalLM(Qwen2Config(**small, **window, num_key_value_heads=2)).eval()
        return LlamaForCausalLM(LlamaConfig(**small, num_key_value_heads=int(kind[-1]))).eval()

    return make


@pytest.fixture(scope="session")
def tiny_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A Hugging Face folder: Llama of two layers, width 32, random weights, byte-level BPE, ChatML with tools."""
    folder = tmp_path_factory.mktemp("tiny_model")
    tokenizer = make_tokenizer()
    tokenizer.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=2048,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        initializer_range=0.3,  # far from uniform, so that a mistake in attention shows in the logits
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def tiny_tokenizer(tiny_model_dir: Path) -> Any:
    """The tokenizer of ``tiny_model_dir``."""
    return AutoTokenizer.from_pretrained(tiny_model_dir)


@pytest.fixture
def tiny_model(tiny_model_dir: Path) -> LlamaForCausalLM:
    """The model of ``tiny_model_dir``, freshly loaded, in evaluation mode."""
    return LlamaForCausalLM.from_pretrained(tiny_model_dir).eval()


class EchoEnv(gymnasium.Env[str, str]):
    """What a stranger writes: text in, text out, nothing of this project. Say the word of the task to end it.

    ``fail`` makes it misbehave in one place: ``reset``, ``step``, ``hang_reset``, ``hang_step``, ``nan``, ``huge``,
    ``type``.
    """

    observation_space = gymnasium.spaces.Text(1000)
    action_space = gymnasium.spaces.Text(1000)
    words = ("left", "right", "up", "down")

    def __init__(self, turns: int = 3, fail: str = "", fail_seeds: tuple[int, ...] = (), slow_s: float = 0.0) -> None:
        self.turns, self.fail, self.fail_seeds, self.slow_s = turns, fail, fail_seeds, slow_s
        self.count = 0
        self.failing = False

    def _hits(self, kind: str) -> bool:
        return self.failing and self.fail == kind

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        super().reset(seed=seed)
        self.count, self.seed = 0, seed
        self.failing = not self.fail_seeds or seed in self.fail_seeds
        if self._hits("reset"):
            raise ValueError("no such game")
        if self._hits("hang_reset"):
            _hang()
        self.word = self.words[int(self.np_random.integers(len(self.words)))]
        return f"say {self.word}", {}

    def step(self, action: str) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        self.count += 1
        if self._hits("step"):
            raise KeyError("inventory")
        if self._hits("hang_step"):
            _hang()
        if self.slow_s:
            _hang(self.slow_s)
        reward: Any = float(self.word in action)
        if self._hits("nan"):
            reward = float("nan")
        if self._hits("huge"):
            reward = 1e300
        if self._hits("type"):
            reward = "one"
        done = self.word in action
        return f"you said {action[:20]!r}", reward, done, not done and self.count >= self.turns, {"said": len(action)}


def _hang(seconds: float = 30.0) -> None:
    time.sleep(seconds)


@pytest.fixture(scope="session", autouse=True)
def _stranger_envs() -> None:
    """Register ``stranger/Echo-v0``."""
    if "stranger/Echo-v0" not in gymnasium.registry:
        gymnasium.register("stranger/Echo-v0", entry_point=EchoEnv)


@pytest.fixture(scope="session")
def echo_env_id() -> str:
    """A plain ``gymnasium.Env`` with text in and text out; see ``EchoEnv`` for its arguments."""
    return "stranger/Echo-v0"


@pytest.fixture(scope="session")
def ranks_script() -> Any:
    """The module ``ranks_script.py``, for what the tests run in this process, on one rank."""
    path = Path(__file__).with_name("ranks_script.py")
    spec = importlib.util.spec_from_file_location("agentr1_train_ranks_script", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def launch() -> Callable[..., subprocess.CompletedProcess[str]]:
    """Run a script on two CPU ranks under the real ``deepspeed`` launcher: ``launch(script, *arguments, ranks=2)``."""

    def run(script: Path, *arguments: Any, ranks: int = 2, timeout: float = 1200) -> subprocess.CompletedProcess[str]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            port = probe.getsockname()[1]
        scripts = Path(sys.executable).parent
        command = [scripts / "deepspeed", "--num_accelerators", ranks, "--no_local_rank", "--master_port", port, script]
        environment = {
            name: value for name, value in os.environ.items() if name not in ("RANK", "WORLD_SIZE", "LOCAL_RANK")
        }
        environment |= {
            "DS_ACCELERATOR": "cpu",
            "OMP_NUM_THREADS": "1",
            "PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}",
        }
        return subprocess.run(
            [str(part) for part in (*command, *arguments)],
            env=environment,
            capture_output=True,
            text=True,
            timeout=timeout,
        )

    return run


@pytest.fixture(scope="session")
def two_ranks(
    launch: Callable[..., subprocess.CompletedProcess[str]],
    tiny_model_dir: Path,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[dict[str, Any]]:
    """What each of two ranks saw in ``ranks_script.main``: one launch for all tests."""
    out = tmp_path_factory.mktemp("two_ranks")
    done = launch(Path(__file__).with_name("ranks_script.py"), out, tiny_model_dir)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return [torch.load(out / f"rank_{rank}.pt") for rank in range(2)]


@pytest.fixture(scope="session")
def symbol_model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model for ``symbol_env``: one token a symbol, one layer of width 32, about 10,000 parameters."""
    folder = tmp_path_factory.mktemp("symbol_model")
    vocabulary = {token: index for index, token in enumerate(("<pad>", "<end>", "<ask>", "a", "b"))}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    tokenizer.decoder = decoders.Fuse()
    wrapped = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>", additional_special_tokens=["<ask>"]
    )
    wrapped.chat_template = (
        "{% for message in messages %}{{ message['content'] }}{{ '<end>' if message['role'] == 'assistant' }}"
        "{% endfor %}{{ '<ask>' if add_generation_prompt }}"
    )
    wrapped.save_pretrained(folder)
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=len(vocabulary),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=2,
        max_position_embeddings=64,
        pad_token_id=0,
        bos_token_id=None,
        eos_token_id=1,
        tie_word_embeddings=False,
    )
    LlamaForCausalLM(config).save_pretrained(folder)
    return folder


@pytest.fixture
def symbol_recipe(
    symbol_model_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., dict[str, Any]]:
    """Make a small recipe on ``symbol_env`` as nested tables: ``symbol_recipe(updates=3, rollout={"groups": 2})``."""
    monkeypatch.syspath_prepend(Path(__file__).parent)

    def make(**sections: Any) -> dict[str, Any]:
        table: dict[str, Any] = {
            "run_dir": str(tmp_path / "run"),
            "updates": 2,
            "env": {"id": "symbol_env:Symbol-v0"},
            "model": {"path": str(symbol_model_dir)},
            "rollout": {
                "groups": 2,
                "group_size": 4,
                "max_prompt_tokens": 16,
                "max_response_tokens": 1,
                "patience_s": 10.0,
            },
            "optimizer": {"lr": 1e-2},
            "engine": {"device": "cpu", "threads": 1},
            "tracking": {"tensorboard": False, "progress": False},
        }
        for name, value in sections.items():
            table[name] = table.get(name, {}) | value if isinstance(value, dict) else value
        return table

    return make
