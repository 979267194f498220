from agentr1_envs.alfworld.names import name_things


def test_the_last_id_of_a_kind_is_number_one() -> None:
    names = name_things(["cup_bar__plus_2", "cup_bar__minus_1", "cup_bar__plus_1", "desk_bar_1"])
    assert names == {
        "cup_bar__minus_1": "cup 3",
        "cup_bar__plus_1": "cup 2",
        "cup_bar__plus_2": "cup 1",
        "desk_bar_1": "desk 1",
    }


def test_basins_are_a_kind_of_their_own_and_ids_without_a_place_keep_theirs() -> None:
    names = name_things(["sink_bar_1_bar_sinkbasin", "sink_bar_1", "agent1"])
    assert names == {"sink_bar_1_bar_sinkbasin": "sinkbasin 1", "sink_bar_1": "sink 1", "agent1": "agent1 "}
