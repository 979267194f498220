from agentr1_envs.alfworld.facts import Facts

BASE = Facts([("stands", "desk", "here"), ("stands", "bed", "there")])


def test_facts_are_found_by_predicate_and_by_argument() -> None:
    facts = Facts([("lies", "mug", "desk"), ("lies", "pen", "desk"), ("lies", "book", "bed")], BASE)
    assert set(facts.rows_with("lies", 1, "desk")) == {("mug", "desk"), ("pen", "desk")}
    assert set(facts.rows_with("stands", 0, "bed")) == {("bed", "there")}
    assert facts.has("stands", ("desk", "here"))
    assert facts.lacks("lies", ("mug", "bed"))
    assert (facts.count("lies"), facts.count("stands"), facts.count("none")) == (3, 2, 0)


def test_indexes_follow_changes_and_what_became_false_is_kept() -> None:
    facts = Facts([("lies", "mug", "desk")], BASE)
    assert set(facts.rows_with("lies", 1, "desk")) == {("mug", "desk")}
    facts.make("lies", ("mug", "desk"), False)
    facts.make("lies", ("mug", "bed"), True)
    assert set(facts.rows_with("lies", 1, "desk")) == set()
    assert set(facts.rows_with("lies", 0, "mug")) == {("mug", "bed")}
    assert list(facts.own()) == [("lies", "mug", "bed"), ("not_lies", "mug", "desk")]
    facts.make("lies", ("mug", "desk"), True)
    assert facts.lacks("not_lies", ("mug", "desk"))


def test_a_copy_is_its_own() -> None:
    facts = Facts([("lies", "mug", "desk")], BASE)
    twin = facts.copy()
    twin.make("lies", ("mug", "desk"), False)
    assert facts.has("lies", ("mug", "desk"))
    assert twin.has("stands", ("desk", "here"))
