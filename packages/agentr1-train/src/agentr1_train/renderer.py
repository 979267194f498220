"""From observations to prompt ids, through the model's own chat template.

Incremental: when an observation extends the conversation, the ids already seen (prompt and sampled response, exactly)
are kept and only the template's text after the assistant's content is tokenised. It samples nothing and trains nothing.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import AutoTokenizer, GenerationConfig, PreTrainedTokenizerFast

from agentr1_train.errors import ConfigError, MissingFileError

Message = Mapping[str, Any]
Observation = str | Sequence[Message]
"""What an environment returns: what is new as text (under ``replace``: everything), or the whole state as messages."""

_MARK = "\u2042mark\u2042"  # stands for an assistant's content; no template holds it
_PROBE_TOOL = {"type": "function", "function": {"name": "probe", "description": "", "parameters": {"type": "object"}}}


@dataclass(frozen=True, slots=True)
class Conversation:
    """What the model has seen in one episode. Frozen, so an episode may branch from any of its states."""

    messages: tuple[Message, ...]
    prompt_ids: tuple[int, ...]
    """The next prompt: everything seen, up to and with the generation prompt. Length P."""
    tools: tuple[Mapping[str, Any], ...] = ()
    """Schemas for the template; empty when they stand in the system text."""
    system_prompt: str = ""


def load_tokenizer(path: str, chat_template: str = "") -> Any:
    """Return the tokenizer in ``path``, with the Jinja file ``chat_template`` in place of its own template if given.

    Raises:
        MissingFileError: no tokenizer there, or no such template file.
    """
    try:
        tokenizer = AutoTokenizer.from_pretrained(path)
    except (OSError, ValueError) as error:
        raise MissingFileError(f"model.path = {path!r}: no tokenizer could be loaded from it ({error}).") from error
    if chat_template:
        file = Path(chat_template)
        if not file.is_file():
            raise MissingFileError(f"model.chat_template = {chat_template!r}: no such file.")
        tokenizer.chat_template = file.read_text("utf-8")
    return tokenizer


def byte_tokenizer() -> Any:
    """Return a tokenizer with one token a byte of UTF-8, for a model whose own is not known: lengths are then bytes."""
    alphabet = {char: index for index, char in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    made = Tokenizer(models.BPE(vocab=alphabet, merges=[]))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=made)
    turns = "{% for message in messages %}{{ message['role'] + ': ' + message['content'] + '\n' }}{% endfor %}"
    tokenizer.chat_template = turns + "{{ tools or '' }}"
    return tokenizer


class Renderer:
    """Renders the conversations of any number of episodes; holds the tokenizer, no episode."""

    def __init__(self, tokenizer: Any, *, context: Literal["append", "replace"] = "append", path: str = "") -> None:
        """Probe the template once.

        Args:
            tokenizer: a transformers tokenizer with a chat template.
            context: what a ``str`` observation is: what is new, or the whole state.
            path: model folder; its generation config may name further end tokens.

        Raises:
            ConfigError: there is no chat template, or it cannot render a user's and an assistant's turn.
        """
        if not getattr(tokenizer, "chat_template", None):
            raise ConfigError("the tokenizer has no chat template. Set model.chat_template to a file with one (Jinja).")
        self.tokenizer = tokenizer
        self.context = context
        turn = self._template(
            ({"role": "user", "content": "x"}, {"role": "assistant", "content": _MARK}), generate=False
        )
        self._turn_end_ids = self._encode(self._after_mark(turn))
        self._system_role = self._takes_system_role()
        self.end_ids = self._find_end_ids(path)

    def start(
        self,
        observation: Observation,
        *,
        system_prompt: str = "",
        tool_schemas: Sequence[Mapping[str, Any]] = (),
        tools_in_template: bool = False,
    ) -> Conversation:
        """Return the first prompt of an episode.

        Args:
            observation: the observation of ``reset``.
            system_prompt: put first, unless the observation brings its own system message.
            tool_schemas: OpenAI function schemas; given to the template only under ``tools_in_template``.
            tools_in_template: false when the schemas already stand in the system text.

        Raises:
            ConfigError: the template takes no tools, or cannot render these messages.
        """
        tools = tuple(tool_schemas) if tools_in_template else ()
        if tools and not self._takes_tools():
            raise ConfigError(
                "the environment hands its tools to the chat template (tools_in_template), which ignores them. "
                "Take a template with tools (model.chat_template), or write the schemas into the system prompt."
            )
        return self._full(self._state(observation, system_prompt), tools, system_prompt)

    def extend(
        self, conversation: Conversation, response_ids: Sequence[int], action: str, observation: Observation
    ) -> Conversation:
        """Return the prompt that follows a response.

        Args:
            conversation: what was seen before the response.
            response_ids: exactly what was sampled. Length L.
            action: its text, as the environment received it.
            observation: what the environment answered.
        """
        said = {"role": "assistant", "content": action}
        if isinstance(observation, str):
            if self.context == "replace":
                messages = self._state(observation, conversation.system_prompt)
                return self._full(messages, conversation.tools, conversation.system_prompt)
            new: tuple[Message, ...] = ({"role": "user", "content": observation},)
        else:
            messages = self._state(observation, conversation.system_prompt)
            seen = len(conversation.messages)
            if messages[:seen] != conversation.messages or not _is_said(messages[seen : seen + 1], action):
                return self._full(messages, conversation.tools, conversation.system_prompt)
            said, new = messages[seen], messages[seen + 1 :]
        ids = (*conversation.prompt_ids, *response_ids, *self._bridge(response_ids, new))
        return Conversation((*conversation.messages, said, *new), ids, conversation.tools, conversation.system_prompt)

    def decode(self, response_ids: Sequence[int]) -> str:
        """Return the text of a response without the end token that closed it; all other tokens stay."""
        ids = list(response_ids)
        if ids and ids[-1] in self.end_ids:
            ids.pop()
        return self.tokenizer.decode(ids, skip_special_tokens=False, clean_up_tokenization_spaces=False)

    def encode_response(self, action: str) -> tuple[int, ...]:
        """Return the ids of a written response, closed by the token that ends a turn: what a demonstration trains."""
        special = set(self.tokenizer.added_tokens_decoder)
        closing = [token for token in self._turn_end_ids if token in special][:1] or list(self.end_ids[:1])
        return (*self._encode(action), *closing)

    def _bridge(self, response_ids: Sequence[int], new: tuple[Message, ...]) -> list[int]:
        """Return the ids between a response and the next one: end of turn unless sampled, new messages, next turn."""
        # Tools are left out: they stand in the first prompt, and some templates would write them again here.
        messages = ({"role": "user", "content": "x"}, {"role": "assistant", "content": _MARK}, *new)
        ids = self._encode(self._after_mark(self._template(messages)))
        turn_end = ids[: len(self._turn_end_ids)]
        if response_ids and response_ids[-1] in self.end_ids and response_ids[-1] in turn_end:
            return ids[turn_end.index(response_ids[-1]) + 1 :]
        return ids

    def _state(self, observation: Observation, system_prompt: str) -> tuple[Message, ...]:
        messages: tuple[Message, ...]
        if isinstance(observation, str):
            messages = ({"role": "user", "content": observation},)
        else:
            messages = tuple({**message} for message in observation)
        if system_prompt and not (messages and messages[0].get("role") == "system"):
            messages = ({"role": "system", "content": system_prompt}, *messages)
        return messages

    def _full(self, messages: tuple[Message, ...], tools: tuple[Mapping[str, Any], ...], system: str) -> Conversation:
        ids = tuple(self._encode(self._template(messages, tools)))
        if not ids:
            raise ConfigError(
                f"the chat template renders {len(messages)} messages to nothing; a prompt needs one token."
            )
        return Conversation(messages, ids, tools, system)

    def _template(
        self, messages: Sequence[Message], tools: Sequence[Mapping[str, Any]] = (), *, generate: bool = True
    ) -> str:
        if not getattr(self, "_system_role", True):
            messages = _fold_system(messages)
        try:
            return self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                tools=[dict(tool) for tool in tools] or None,
                add_generation_prompt=generate,
                tokenize=False,
            )
        except Exception as error:  # Jinja raises its own kinds, a template's raise_exception another
            roles = ", ".join(str(message.get("role")) for message in messages)
            raise ConfigError(
                f"the chat template cannot render messages with the roles {roles}: {error}. "
                "Set model.chat_template to a template that can."
            ) from error

    def _after_mark(self, text: str) -> str:
        if _MARK not in text:
            raise ConfigError(
                "the chat template drops the assistant's text. Set model.chat_template to one that keeps it."
            )
        return text.rpartition(_MARK)[2]

    def _encode(self, text: str) -> list[int]:
        return self.tokenizer.encode(text, add_special_tokens=False)

    def _takes_system_role(self) -> bool:
        try:
            return _MARK in self._template(({"role": "system", "content": _MARK}, {"role": "user", "content": "x"}))
        except ConfigError:
            return False

    def _takes_tools(self) -> bool:
        user = ({"role": "user", "content": "x"},)
        return self._template(user, (_PROBE_TOOL,)) != self._template(user)

    def _find_end_ids(self, path: str) -> tuple[int, ...]:
        """End tokens: the tokenizer's, the generation config's, and the first special token that closes a turn."""
        found = [self.tokenizer.eos_token_id]
        if path and (Path(path) / "generation_config.json").is_file():
            eos = GenerationConfig.from_pretrained(path).eos_token_id
            found += eos if isinstance(eos, list) else [eos]
        special = set(self.tokenizer.added_tokens_decoder)
        found += [token for token in self._turn_end_ids if token in special][:1]
        return tuple(dict.fromkeys(token for token in found if token is not None))


def newest_text(observation: Observation) -> str:
    """Return the newest observation text: the observation itself, or its last message's content."""
    if isinstance(observation, str):
        return observation
    return str(observation[-1].get("content", "")) if observation else ""


def _is_said(messages: Sequence[Message], action: str) -> bool:
    return bool(messages) and messages[0].get("role") == "assistant" and messages[0].get("content") == action


def _fold_system(messages: Iterable[Message]) -> list[Message]:
    """Write the system text in front of the first user message, for templates without a system role."""
    folded: list[Message] = []
    system = ""
    for message in messages:
        if message.get("role") == "system":
            system += f"{message['content']}\n\n"
        elif system and message.get("role") == "user":
            folded.append({**message, "content": system + message["content"]})
            system = ""
        else:
            folded.append(message)
    return folded
