"""The two spaces of text environments: `Text` (any string) and `Messages` (a whole conversation).

`gymnasium.spaces.Text` rejects blanks and non-ASCII letters by default, is slow with a Unicode character set, and
returns garbage through the shared memory of an `AsyncVectorEnv`. These spaces accept every string, and refuse
shared memory with the remedy in the message.

They do not flatten to a `Box` and take no sampling mask: a string has no fixed size.
"""

from collections.abc import Iterable, Sequence
from copy import deepcopy
from typing import Any, Literal, NoReturn, TypedDict, cast

import numpy as np
from gymnasium import spaces
from gymnasium.spaces.utils import is_space_dtype_shape_equiv
from gymnasium.vector import utils as vector_utils

from agentr1_envs.errors import SettingError, SharedMemoryError

Role = Literal["system", "user", "assistant", "tool"]
ROLES: tuple[Role, ...] = ("system", "user", "assistant", "tool")

_SAMPLE_ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789 .,;:?!-+*/()[]{}<>'\"\nàéüñß€中文🙂"
_SAMPLE_SPAN = 32


class Message(TypedDict):
    """One entry of a conversation."""

    role: Role
    content: str


class Text(spaces.Space[str]):
    """Every Unicode string whose length lies in ``[min_length, max_length]``; no upper bound by default."""

    def __init__(
        self,
        max_length: int | None = None,
        *,
        min_length: int = 0,
        seed: int | np.random.Generator | None = None,
    ) -> None:
        """Set the bounds, in characters.

        Raises:
            SettingError: `min_length` is negative, or `max_length` lies below it.
        """
        if min_length < 0 or (max_length is not None and max_length < min_length):
            raise SettingError(
                f"Text(max_length={max_length}, min_length={min_length}): needs 0 <= min_length <= max_length."
            )
        self.min_length, self.max_length = min_length, max_length
        super().__init__(dtype=str, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Always false."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> str:
        """Draw a string of at most 32 characters more than `min_length`, from a mixed alphabet.

        Raises:
            SettingError: a mask or probability was given.
        """
        _refuse_masks(mask, probability)
        longest = self.min_length + _SAMPLE_SPAN
        if self.max_length is not None:
            longest = min(longest, self.max_length)
        length = int(self.np_random.integers(self.min_length, longest + 1))
        picks = self.np_random.integers(0, len(_SAMPLE_ALPHABET), size=length)
        return "".join(_SAMPLE_ALPHABET[i] for i in picks)

    def contains(self, x: Any) -> bool:
        """True for a `str` within the bounds."""
        return (
            isinstance(x, str) and len(x) >= self.min_length and (self.max_length is None or len(x) <= self.max_length)
        )

    def __repr__(self) -> str:
        return f"Text(max_length={self.max_length}, min_length={self.min_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Text) and self.min_length == other.min_length and self.max_length == other.max_length

    __hash__ = None  # pyright: ignore[reportAssignmentType]


class Messages(spaces.Space[tuple[Message, ...]]):
    """Every tuple of messages ``{"role", "content"}`` whose roles are among `roles`."""

    def __init__(self, roles: Sequence[Role] = ROLES, *, seed: int | np.random.Generator | None = None) -> None:
        """Set the legal roles.

        Raises:
            SettingError: `roles` is empty.
        """
        if not roles:
            raise SettingError("Messages(roles=()): needs at least one role.")
        self.roles: tuple[Role, ...] = tuple(roles)
        super().__init__(seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Always false."""
        return False

    def sample(self, mask: None = None, probability: None = None) -> tuple[Message, ...]:
        """Draw up to four messages with short random contents.

        Raises:
            SettingError: a mask or probability was given.
        """
        _refuse_masks(mask, probability)
        text = Text(seed=self.np_random)
        count = int(self.np_random.integers(0, 5))
        return tuple(
            Message(role=self.roles[int(self.np_random.integers(len(self.roles)))], content=text.sample())
            for _ in range(count)
        )

    def contains(self, x: Any) -> bool:
        """True for a tuple of dicts with exactly the keys `role` and `content`, both legal."""
        return isinstance(x, tuple) and all(self._is_message(item) for item in cast("tuple[Any, ...]", x))

    def _is_message(self, item: Any) -> bool:
        if not isinstance(item, dict):
            return False
        fields = cast("dict[Any, Any]", item)
        return len(fields) == 2 and fields.get("role") in self.roles and isinstance(fields.get("content"), str)

    def to_jsonable(self, sample_n: Iterable[tuple[Message, ...]]) -> list[list[dict[str, str]]]:
        """A batch as lists of plain dicts."""
        return [[{"role": m["role"], "content": m["content"]} for m in conversation] for conversation in sample_n]

    def from_jsonable(self, sample_n: list[Any]) -> list[tuple[Message, ...]]:
        """The inverse of :meth:`to_jsonable`."""
        return [tuple(Message(role=m["role"], content=m["content"]) for m in conversation) for conversation in sample_n]

    def __repr__(self) -> str:
        return f"Messages(roles={self.roles})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Messages) and self.roles == other.roles

    __hash__ = None  # pyright: ignore[reportAssignmentType]


def _refuse_masks(mask: object, probability: object) -> None:
    if mask is not None or probability is not None:
        raise SettingError("Text and Messages sample without mask or probability; pass None for both.")


def _no_shared_memory(space: spaces.Space[Any], n: int = 1, ctx: object = None) -> NoReturn:
    raise SharedMemoryError(
        f"{space} holds text of any length, which fits no fixed block of shared memory. Turn it off: "
        'gymnasium.make_vec(..., vectorization_mode="async", vector_kwargs={"shared_memory": False}), '
        "or AsyncVectorEnv(..., shared_memory=False)."
    )


def _batch_differing(batch: Sequence[spaces.Space[Any]]) -> spaces.Space[Any]:
    return spaces.Tuple([deepcopy(space) for space in batch])


def _same_kind(space_1: spaces.Space[Any], space_2: spaces.Space[Any]) -> bool:
    return type(space_1) is type(space_2)


for _space in (Text, Messages):
    for _function, _implementation in (
        (cast("Any", vector_utils).create_shared_memory, _no_shared_memory),
        (cast("Any", vector_utils).batch_differing_spaces, _batch_differing),
        (cast("Any", is_space_dtype_shape_equiv), _same_kind),
    ):
        _function.register(_space, _implementation)
