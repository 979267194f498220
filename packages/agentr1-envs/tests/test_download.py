import json
import sys
from pathlib import Path

import huggingface_hub
import pytest
from agentr1_envs import download as download_module
from agentr1_envs.datasets import GSM8K
from agentr1_envs.download import download
from agentr1_envs.errors import DependencyMissingError, DownloadError


def test_download_without_the_package_names_the_install_line(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(DependencyMissingError, match=r'pip install "agentr1-envs\[download\]"'):
        download(GSM8K, tmp_path / "out")


def test_download_without_a_network_says_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unreachable(*arguments: object) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(download_module, "getproxies", dict)
    monkeypatch.setattr(download_module, "getaddrinfo", unreachable)
    with pytest.raises(DownloadError, match=r"openai/gsm8k: Name or service not known\..*agentr1-envs prepare gsm8k"):
        download(GSM8K, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_download_fetches_and_prepares(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    fetched = tmp_path / "main-test.jsonl"
    fetched.write_text(json.dumps({"question": "q", "answer": "#### 1"}))
    asked: list[tuple[str, str]] = []

    def fetch(repository: str, name: str, repo_type: str) -> str:
        asked.append((repository, name))
        return str(fetched)

    names = [
        "README.md",
        "main/test-00000-of-00001.parquet",
        "main/train-00000-of-00001.parquet",
        "socratic/test-0.parquet",
    ]
    monkeypatch.setattr(download_module, "getaddrinfo", lambda *arguments: [])
    monkeypatch.setattr(huggingface_hub, "list_repo_files", lambda repository, repo_type: names)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", fetch)
    written, _ = download(GSM8K, tmp_path / "out", "test")
    assert asked == [("openai/gsm8k", "main/test-00000-of-00001.parquet")]
    assert [(part.split, part.tasks) for part in written] == [("test", 1)]
    names.clear()
    with pytest.raises(DownloadError, match="layout has changed"):
        download(GSM8K, tmp_path / "other")
