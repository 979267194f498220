"""Fetching WebShop's files with the real gdown, from a server of this test's own instead of Google Drive."""

import hashlib
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from agentr1_envs.errors import DataMismatchError, DependencyMissingError, DownloadError
from agentr1_envs.webshop import download as download_module
from agentr1_envs.webshop import official
from agentr1_envs.webshop.download import fetch_official, official_names
from agentr1_envs.webshop.official import Published

FILES = {
    "items_shuffle_1000.json": b'[{"asin": "B1", "name": "Tea"}]',
    "items_ins_v2_1000.json": b"{}",
    "items_human_ins.json": b'{"B1": []}',
}


class _Drive(ThreadingHTTPServer):
    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.served: list[str] = []
        self.contents = dict(FILES)


class _Handler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        assert isinstance(self.server, _Drive)
        name = self.path.rpartition("id-of-")[2]
        self.server.served.append(name)
        content = self.server.contents.get(name)
        self.send_response(200 if content is not None else 404)
        self.send_header("Content-Length", str(len(content or b"")))
        self.end_headers()
        self.wfile.write(content or b"")

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def drive(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Drive]:
    for name in ("http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"):
        monkeypatch.delenv(name, raising=False)
    known = {
        name: Published(len(content), hashlib.sha256(content).hexdigest(), f"id-of-{name}")
        for name, content in FILES.items()
    }
    with _Drive() as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for module in (official, download_module):
            monkeypatch.setattr(module, "PUBLISHED", known)
        monkeypatch.setattr(download_module, "DRIVE", f"http://127.0.0.1:{server.server_port}/uc?id=")
        monkeypatch.setattr(download_module, "_RETRIES", 0)
        yield server
        server.shutdown()


def test_files_are_fetched_once_and_checked(drive: _Drive, tmp_path: Path) -> None:
    folder = fetch_official(tmp_path / "official", "small")
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == FILES
    assert len(drive.served) == 3
    (folder / "items_human_ins.json").unlink()
    fetch_official(folder, "small")
    assert drive.served[3:] == ["items_human_ins.json"]


def test_what_is_not_the_published_file_is_thrown_away(drive: _Drive, tmp_path: Path) -> None:
    drive.contents["items_shuffle_1000.json"] = b"<html>Too many users have viewed this file</html>"
    with pytest.raises(DownloadError, match=r"items_shuffle_1000\.json: .* bytes, the published file") as caught:
        fetch_official(tmp_path, "small")
    assert "items_shuffle_1000.json from http" in str(caught.value)
    assert "items_human_ins.json from" not in str(caught.value)
    assert f"agentr1-envs prepare webshop --source {tmp_path}" in str(caught.value)
    assert "\n" not in str(caught.value)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["items_human_ins.json", "items_ins_v2_1000.json"]


def test_a_file_that_was_there_and_is_another_is_refused(drive: _Drive, tmp_path: Path) -> None:
    (tmp_path / "items_human_ins.json").write_text("{}")
    with pytest.raises(DataMismatchError, match="items_human_ins"):
        fetch_official(tmp_path, "small")
    assert drive.served == []


def test_without_a_network_the_links_are_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    def unreachable(endpoint: str) -> None:
        raise OSError("Name or service not known")

    monkeypatch.setattr(download_module, "check_network", unreachable)
    with pytest.raises(DownloadError, match="Name or service not known") as caught:
        fetch_official(tmp_path / "out", "full")
    for name in ("items_shuffle.json", "items_ins_v2.json", "items_human_ins.json"):
        link = f"{name} from https://drive.google.com/uc?id={official.PUBLISHED[name].drive_id}"
        assert link in str(caught.value)
    assert not (tmp_path / "out").exists()


def test_without_the_package_the_install_line_is_told(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "gdown", None)
    with pytest.raises(DependencyMissingError, match=r"gdown.*pip install \"agentr1-envs\[download\]\""):
        fetch_official(tmp_path, "small")


def test_the_smallest_file_comes_first() -> None:
    assert official_names("full") == ("items_human_ins.json", "items_ins_v2.json", "items_shuffle.json")
    assert official_names("small")[-1] == "items_human_ins.json"
