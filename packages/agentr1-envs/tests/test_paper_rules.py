import pytest
from agentr1_envs.errors import SettingError
from agentr1_envs.paper_rules import RULE_NAMES, PaperRules, process_reward, split_rules

RULES = PaperRules()


@pytest.mark.parametrize(
    ("new_scores", "searches", "expansions", "faults", "reward"),
    [
        ((), 0, 0, 0, 0.0),
        ((1.0,), 1, 0, 0, 1 - 0.1),
        ((0.4, 0.39), 1, 0, 0, 1 - 0.1),
        ((0.5, 0.9, 0.6, 0.8), 0, 1, 0, 3 - 0.05),
        ((0.1, 0.2, 0.3, 0.9), 2, 3, 0, 1 - 0.2 - 0.15),
        ((), 0, 0, 2, -1.0),
        ((1.0, 1.0), 1, 1, 1, 2 - 0.1 - 0.05 - 0.5),
    ],
)
def test_a_step_pays_its_three_best_new_papers_less_its_calls(new_scores, searches, expansions, faults, reward) -> None:
    assert process_reward(RULES, new_scores, searches, expansions, faults) == pytest.approx(reward)


def test_every_number_can_be_set() -> None:
    rules = PaperRules(best_new=1, good_from=0.9, search_cost=1.0, expand_cost=2.0, fault_cost=4.0)
    assert process_reward(rules, (0.95, 0.95, 0.5), 1, 1, 1) == pytest.approx(1 - 1 - 2 - 4)
    rules, others = split_rules({"patience": 1, "max_steps": 3})
    assert (rules.patience, others) == (1, {"max_steps": 3})


@pytest.mark.parametrize("name", RULE_NAMES)
def test_numbers_out_of_range_are_refused(name: str) -> None:
    with pytest.raises(SettingError, match=name):
        PaperRules(**{name: -1})
