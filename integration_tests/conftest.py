"""What every integration test relies on."""

import signal

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

CHATML = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


@pytest.fixture(scope="session", autouse=True)
def ctrl_c_interrupts() -> None:
    """A shell that starts the tests in the background makes them, and what they start, deaf to SIGINT."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tokenizer() -> PreTrainedTokenizerFast:
    """One token a byte, and the tokens of the template."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|im_start|>", "<|im_end|>"]
    vocabulary = {token: index for index, token in enumerate([*special, *alphabet])}
    made = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(special)
    wrapped = PreTrainedTokenizerFast(tokenizer_object=made, eos_token="<|im_end|>", pad_token="<|im_end|>")
    wrapped.chat_template = CHATML
    return wrapped
