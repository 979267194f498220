import json
import pickle

import gymnasium
import pytest
from agentr1_envs.errors import SettingError, SharedMemoryError
from agentr1_envs.spaces import Messages, Text
from gymnasium.vector.utils import batch_differing_spaces, batch_space, concatenate, create_shared_memory, iterate
from hypothesis import given
from hypothesis import strategies as st

SPACES = [Text(), Text(100, min_length=3), Messages(), Messages(("user", "assistant"))]


@given(st.text())
def test_text_contains_every_string(text: str) -> None:
    assert text in Text()
    assert (text in Text(5, min_length=2)) == (2 <= len(text) <= 5)


@pytest.mark.parametrize("other", [None, 1, b"bytes", ["a"], ("a",)])
def test_text_contains_nothing_else(other: object) -> None:
    assert other not in Text()


def test_messages_contains_conversations_only() -> None:
    space = Messages()
    assert () in space
    assert ({"role": "user", "content": "héllo\n🙂"}, {"role": "assistant", "content": ""}) in space
    for wrong in (
        [{"role": "user", "content": "a list"}],
        ({"role": "robot", "content": "x"},),
        ({"role": "user"},),
        ({"role": "user", "content": None},),
        ({"role": "user", "content": "x", "name": "y"},),
        ("user",),
        "text",
    ):
        assert wrong not in space
    assert ({"role": "system", "content": ""},) not in Messages(("user",))


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_samples_lie_inside_and_follow_the_seed(space: gymnasium.Space) -> None:
    twin = pickle.loads(pickle.dumps(space))
    space.seed(7)
    twin.seed(7)
    drawn = [space.sample() for _ in range(50)]
    assert all(sample in space for sample in drawn)
    assert drawn == [twin.sample() for _ in range(50)]
    assert len({str(sample) for sample in drawn}) > 25
    twin.seed(8)
    assert drawn != [twin.sample() for _ in range(50)]


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_a_batch_survives_json(space: gymnasium.Space) -> None:
    space.seed(1)
    batch = [space.sample() for _ in range(10)]
    assert space.from_jsonable(json.loads(json.dumps(space.to_jsonable(batch)))) == batch


def test_equality() -> None:
    assert Text() == Text()
    assert Text(5) != Text(6)
    assert Text(5, min_length=1) != Text(5)
    assert Text() != Messages()
    assert Messages() == Messages()
    assert Messages(("user",)) != Messages()
    assert Text() != gymnasium.spaces.Text(10)


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_batches(space: gymnasium.Space) -> None:
    space.seed(3)
    batched = batch_space(space, n=3)
    sample = batched.sample()
    assert isinstance(sample, tuple)
    assert all(part in space for part in sample)
    assert len(set(map(str, sample))) > 1
    assert list(iterate(batched, sample)) == list(sample)
    assert concatenate(space, sample, None) == sample
    assert batch_differing_spaces([space, space]).sample() in gymnasium.spaces.Tuple([space, space])


@pytest.mark.parametrize("space", SPACES, ids=repr)
def test_shared_memory_is_refused_with_the_remedy(space: gymnasium.Space) -> None:
    with pytest.raises(SharedMemoryError, match=r'vector_kwargs=\{"shared_memory": False\}') as caught:
        create_shared_memory(gymnasium.spaces.Dict({"inside": space}), n=2)
    assert isinstance(caught.value, TypeError)
    assert isinstance(caught.value, ValueError)


def test_wrong_settings_are_refused() -> None:
    with pytest.raises(SettingError, match="min_length"):
        Text(2, min_length=3)
    with pytest.raises(SettingError, match="role"):
        Messages(())
    with pytest.raises(SettingError, match="mask"):
        Text().sample(mask=(1, None))  # type: ignore[arg-type]
