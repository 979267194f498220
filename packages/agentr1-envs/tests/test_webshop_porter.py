import pytest
from agentr1_envs.webshop.porter import stem


@pytest.mark.parametrize(
    ("word", "expected"),
    [
        ("caresses", "caress"), ("ponies", "poni"), ("cats", "cat"), ("feed", "feed"), ("agreed", "agre"),
        ("plastered", "plaster"), ("bled", "bled"), ("motoring", "motor"), ("sing", "sing"), ("conflated", "conflat"),
        ("hopping", "hop"), ("falling", "fall"), ("filing", "file"), ("happy", "happi"), ("sky", "sky"),
        ("relational", "relat"), ("digitizer", "digit"), ("possibly", "possibl"), ("analogies", "analog"),
        ("hopefulness", "hope"), ("electrical", "electr"), ("adoption", "adopt"), ("replacement", "replac"),
        ("controll", "control"), ("roll", "roll"), ("rate", "rate"), ("cease", "ceas"), ("is", "is"), ("4ed", "4ed"),
    ],
)  # fmt: skip
def test_stems_of_porters_paper(word: str, expected: str) -> None:
    assert stem(word) == expected
