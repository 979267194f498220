"""Error classes: one a kind of failure, each also a standard one, each with a message a person can act on."""

import pickle

import pytest
from agentr1_train import errors

CLASSES = [
    item
    for item in vars(errors).values()
    if isinstance(item, type) and issubclass(item, errors.AgentR1Error) and item is not errors.AgentR1Error
]


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_error_is_also_a_standard_one(cls: type[Exception]):
    standard = [base for base in cls.__mro__ if base.__module__ == "builtins"]
    assert set(standard) - {Exception, BaseException, object}
    assert cls.__doc__


def test_an_unknown_name_says_what_was_given_what_is_legal_and_what_was_meant():
    error = errors.UnknownNameError("estimator", "grop", ["rloo", "grpo"])
    assert str(error) == "unknown estimator 'grop'. Did you mean 'grpo'? Legal: grpo, rloo."
    assert (error.kind, error.given, error.legal) == ("estimator", "grop", ("grpo", "rloo"))
    assert isinstance(error, KeyError)


def test_nothing_near_is_not_guessed():
    error = errors.UnknownNameError("estimator", "qqqqqq", ["rloo", "grpo"])
    assert str(error) == "unknown estimator 'qqqqqq'. Legal: grpo, rloo."
    assert errors.did_you_mean("qqqqqq", []) == "."


@pytest.mark.parametrize(
    "error",
    [errors.UnknownNameError("preset", "x", ["grpo"]), errors.ConfigError("a setting")],
)
def test_errors_cross_processes_whole(error: errors.AgentR1Error):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
