import pickle

import pytest
from agentr1_envs import errors


@pytest.mark.parametrize(
    ("kind", "standard"),
    [
        (errors.SettingError, ValueError),
        (errors.UnknownTaskError, KeyError),
        (errors.DataNotFoundError, FileNotFoundError),
        (errors.DependencyMissingError, ImportError),
        (errors.DownloadError, ConnectionError),
        (errors.SharedMemoryError, TypeError),
        (errors.InfoSchemaError, TypeError),
    ],
)
def test_each_error_is_a_standard_one_too_and_says_its_message(kind: type, standard: type) -> None:
    error = kind("what to do")
    assert isinstance(error, standard)
    assert isinstance(error, errors.EnvsError)
    assert str(error) == "what to do"
    assert str(pickle.loads(pickle.dumps(error))) == "what to do"


def test_a_row_error_crosses_processes() -> None:
    error = errors.DataRowError("f.jsonl", 3, "answer", "is missing.")
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error) == "f.jsonl, line 3, field 'answer': is missing."
    assert (twin.path, twin.line, twin.field) == ("f.jsonl", 3, "answer")


def test_suggestions() -> None:
    assert errors.did_you_mean("calculater", ["single", "calculator"]) == " Did you mean 'calculator'?"
    assert errors.did_you_mean("xyz", ["single"]) == ""
    assert errors.require_choice("mode", "single", ["single"]) == "single"
    with pytest.raises(errors.SettingError, match=r"mode='singel' is not known; legal: 'single'\. Did you"):
        errors.require_choice("mode", "singel", ["single"])
