import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.wire_protocol import TOKEN_VARIABLE, find_token, without_module


@pytest.mark.parametrize("env_id", ["agentr1/GSM8K-v0", "agentr1_envs:agentr1/GSM8K-v0"])
def test_an_id_is_compared_without_its_module(env_id: str) -> None:
    assert without_module(env_id) == "agentr1/GSM8K-v0"


def test_the_token_given_goes_before_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(TOKEN_VARIABLE, raising=False)
    assert find_token(None) == ""
    monkeypatch.setenv(TOKEN_VARIABLE, "variable")
    assert (find_token(None), find_token("given"), find_token("")) == ("variable", "given", "")


@pytest.mark.parametrize("token", ["pässword", "two words", "a\nb"])
def test_a_token_fits_into_a_header(token: str) -> None:
    with pytest.raises(SettingError, match="printable ASCII"):
        find_token(token)
