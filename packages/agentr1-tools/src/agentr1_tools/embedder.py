"""SentenceEmbedder: texts to vectors with a model in the folder format of sentence-transformers.

    tokens -> transformer -> pooling (mean or first token) -> normalised, where the folder says so

Read from `modules.json`, the pooling's `config.json`, `sentence_bert_config.json` (the longest input) and
`config_sentence_transformers.json` (prompts in front of queries and passages). A folder that asks for anything else is
refused by name. It downloads nothing and trains nothing. The only door of this package to torch and transformers.
"""

import contextlib
import hashlib
import json
import threading
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import AutoModel, AutoTokenizer
from transformers.utils import logging

from agentr1_tools.errors import ToolConfigError, listed

Pooling = Literal["mean", "cls"]
TextKind = Literal["query", "passage"]
_BATCH = 32
_WEIGHTS_AND_SETTINGS = (".json", ".safetensors", ".txt", ".model")


@dataclass(frozen=True)
class EmbedderConfig:
    """What a folder says about the way from tokens to a vector."""

    pooling: Pooling
    normalize: bool
    max_tokens: int | None
    lower_case: bool
    query_prompt: str
    passage_prompt: str


class SentenceEmbedder:
    """Embeds on the CPU, in float32; threads may share it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.expanduser()
        self.config = read_config(self.folder)
        if not any(self.folder.glob("*.safetensors")):
            raise ToolConfigError(f"{self.folder} holds no *.safetensors; convert the weights to that format")
        self._tokenizer: Any = cast(Any, AutoTokenizer).from_pretrained(self.folder, local_files_only=True)
        with _quiet_transformers():
            model: Any = cast(Any, AutoModel).from_pretrained(
                self.folder, local_files_only=True, use_safetensors=True, dtype=torch.float32
            )
        self._model: Any = model.eval()
        self.dimension = int(model.config.hidden_size)
        longest = self.config.max_tokens or int(self._tokenizer.model_max_length)
        self._max_tokens = min(longest, int(getattr(model.config, "max_position_embeddings", longest)))
        self._lock = threading.Lock()  # a tokenizer keeps padding and truncation as state

    def embed(self, texts: Sequence[str], kind: TextKind = "passage") -> NDArray[np.float32]:
        """Vectors of the texts, in their order. Shape: (len(texts), dimension)."""
        vectors = np.zeros((len(texts), self.dimension), dtype=np.float32)
        by_length = sorted(range(len(texts)), key=lambda position: len(texts[position]))  # little padding in a batch
        for start in range(0, len(texts), _BATCH):
            chosen = by_length[start : start + _BATCH]
            vectors[chosen] = self._embed_batch([self._prepared(texts[position], kind) for position in chosen])
        return vectors

    def fingerprint(self) -> str:
        """A hash of the folder's weights and settings: equal for folders that embed alike."""
        digest = hashlib.sha256()
        for path in sorted(self.folder.rglob("*")):
            if path.is_file() and path.suffix in _WEIGHTS_AND_SETTINGS:
                digest.update(path.relative_to(self.folder).as_posix().encode() + b"\0")
                with path.open("rb") as file:
                    digest.update(hashlib.file_digest(file, "sha256").digest())
        return digest.hexdigest()

    def _prepared(self, text: str, kind: TextKind) -> str:
        prompt = self.config.query_prompt if kind == "query" else self.config.passage_prompt
        text = prompt + text.strip()
        return text.lower() if self.config.lower_case else text

    def _embed_batch(self, texts: list[str]) -> NDArray[np.float32]:
        with self._lock:
            tokens: Any = self._tokenizer(
                texts, padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt"
            )
        with torch.inference_mode():
            states: torch.Tensor = self._model(**tokens).last_hidden_state
            return pooled(states, tokens["attention_mask"], self.config).numpy()


def pooled(states: torch.Tensor, mask: torch.Tensor, config: EmbedderConfig) -> torch.Tensor:
    """One vector a text out of one a token. Shapes: (B, T, D), (B, T) -> (B, D)."""
    if config.pooling == "cls":
        vectors = states[:, 0]
    else:
        weights = mask.unsqueeze(-1).to(states.dtype)
        vectors = (states * weights).sum(dim=1) / weights.sum(dim=1).clamp(min=1e-9)
    return torch.nn.functional.normalize(vectors, dim=-1) if config.normalize else vectors


def read_config(folder: Path) -> EmbedderConfig:
    """Read a sentence-transformers folder. Raises ToolConfigError naming the file and what is not supported in it."""
    if not folder.is_dir():
        raise ToolConfigError(f"no model folder at {folder}; give one in the format of sentence-transformers")
    modules = _json(folder / "modules.json", required=True)
    kinds = [str(module["type"]).rpartition(".")[2] for module in cast(list[dict[str, Any]], modules)]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise ToolConfigError(
            f"{folder / 'modules.json'}: the modules are {', '.join(kinds)}; supported are Transformer, Pooling and, "
            "after them, Normalize"
        )
    if modules[0]["path"]:
        raise ToolConfigError(
            f"{folder / 'modules.json'}: the transformer is in {modules[0]['path']!r}, not at the top"
        )
    bert = _json(folder / "sentence_bert_config.json")
    top = _json(folder / "config_sentence_transformers.json")
    prompts: dict[str, str] = top.get("prompts") or {}
    default = prompts.get(str(top.get("default_prompt_name")), "")
    return EmbedderConfig(
        pooling=_pooling(folder / str(modules[1]["path"]) / "config.json", with_prompts=bool(prompts)),
        normalize="Normalize" in kinds,
        max_tokens=bert.get("max_seq_length"),
        lower_case=bool(bert.get("do_lower_case", False)),
        query_prompt=prompts.get("query", default),
        passage_prompt=prompts.get("document", prompts.get("passage", default)),
    )


def _pooling(path: Path, *, with_prompts: bool) -> Pooling:
    settings = _json(path, required=True)
    modes = {name.removeprefix("pooling_mode_") for name, on in settings.items() if on is True and "_mode_" in name}
    if isinstance(settings.get("pooling_mode"), str):  # how newer folders say it
        modes = {settings["pooling_mode"]}
    if with_prompts and settings.get("include_prompt") is False:
        raise ToolConfigError(f"{path}: prompts that pooling leaves out (include_prompt false) are not supported")
    if modes in ({"mean_tokens"}, {"mean"}):
        return "mean"
    if modes in ({"cls_token"}, {"cls"}):
        return "cls"
    raise ToolConfigError(f"{path}: pooling by {listed(modes)} is not supported; supported are mean and cls")


@contextlib.contextmanager
def _quiet_transformers() -> Generator[None]:
    """Keep transformers from drawing a progress bar and from reporting what it loaded."""
    shown, level = logging.is_progress_bar_enabled(), logging.get_verbosity()
    logging.disable_progress_bar()
    logging.set_verbosity_error()
    try:
        yield
    finally:
        logging.set_verbosity(level)
        if shown:
            logging.enable_progress_bar()


def _json(path: Path, *, required: bool = False) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        if required:
            raise ToolConfigError(f"{path} is missing; a sentence-transformers folder has it") from None
        return {}
    except ValueError as error:
        raise ToolConfigError(f"{path} is not JSON: {error}") from None
