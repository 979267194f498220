from agentr1_envs.gsm8k_data import gold_expressions


def test_gold_expressions() -> None:
    assert gold_expressions("a <<16-3-4=9>>9, $<<9*$2=18>>18 <<5=5>> <<1,000*.5=500>> <<20%*50=10>>") == (
        "16-3-4",
        "9*2",
        "1000*.5",
        "(20/100)*50",
    )
    assert gold_expressions("<<2x3=6>> <<x+1=2>> <<2-=1>> <<=1>> none") == ("2*3",)
