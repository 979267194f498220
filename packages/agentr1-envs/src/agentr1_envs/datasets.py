"""The datasets this package knows, by name: how their rows are read and where their files are found."""

from agentr1_envs.errors import SettingError, did_you_mean
from agentr1_envs.gsm8k_data import read_gsm8k
from agentr1_envs.hotpotqa_data import read_hotpotqa
from agentr1_envs.loader import Dataset, HubFiles
from agentr1_envs.paper_data import read_paper_task
from agentr1_envs.samples import small_library, small_world, word_problems
from agentr1_envs.tasks import Task


def _bundled_gsm8k(split: str) -> tuple[tuple[Task, ...], str]:
    return word_problems.word_problems(split), ""


def _bundled_hotpotqa(split: str) -> tuple[tuple[Task, ...], str]:
    return small_world.small_world(split), str(small_world.CORPUS_PATH)


def _bundled_papers(split: str) -> tuple[tuple[Task, ...], str]:
    return small_library.small_library(split), str(small_library.CORPUS_PATH)


GSM8K = Dataset(
    name="gsm8k",
    env_id="agentr1/GSM8K-v0",
    splits=("train", "test"),
    read=read_gsm8k,
    bundled=_bundled_gsm8k,
    official=(),
    hub=HubFiles("openai/gsm8k", (("train", "main/train-*.parquet"), ("test", "main/test-*.parquet"))),
    ability="math",
    data_source="openai/gsm8k",
)

HOTPOTQA = Dataset(
    name="hotpotqa",
    env_id="agentr1/HotpotQA-v0",
    splits=("train", "dev"),
    read=read_hotpotqa,
    bundled=_bundled_hotpotqa,
    official=(
        ("train", "hotpot_train_v1.1.json"),
        ("train", "train_distractor.jsonl"),
        ("dev", "hotpot_dev_distractor_v1.json"),
        ("dev", "dev_distractor.jsonl"),
        ("dev", "hotpot_dev_fullwiki_v1.json"),
        ("dev", "hotpot_dev_v1_simplified.json"),
        ("train", "musique_ans_v1.0_train.jsonl"),
        ("train", "train100.jsonl"),
        ("dev", "musique_ans_v1.0_dev.jsonl"),
        ("dev", "dev_sample.jsonl"),
    ),
    hub=HubFiles(
        "hotpotqa/hotpot_qa",
        (("train", "distractor/train-*.parquet"), ("dev", "distractor/validation-*.parquet")),
    ),
    ability="multi-hop question answering",
    data_source="hotpotqa/hotpot_qa",
    further_splits=("test",),
)

PAPERS = Dataset(
    name="papers",
    env_id="agentr1/PaperSearch-v0",
    splits=("train", "test"),
    read=read_paper_task,
    bundled=_bundled_papers,
    official=(("train", "queries.jsonl"), ("test", "queries.jsonl")),
    hub=None,
    ability="paper search",
    data_source="agentr1/papers",
)

SHOP = "webshop"
"""Not among `DATASETS`: a catalogue has no rows of questions, so `webshop/prepare.py` and `download.py` serve it."""

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in (GSM8K, HOTPOTQA, PAPERS)}


def find_dataset(name: str) -> Dataset:
    """The dataset of this name, of those that `prepare` and `download` know; the shop aside.

    Raises:
        SettingError: there is none.
    """
    prepared = [known.name for known in DATASETS.values() if known.hub]
    legal = [*prepared, SHOP]
    if name not in prepared:
        asis = f" The files of {name} are read as they are: pass data=FOLDER." if name in DATASETS else ""
        raise SettingError(f"Task {name!r} is not known; legal: {', '.join(legal)}.{asis or did_you_mean(name, legal)}")
    return DATASETS[name]
