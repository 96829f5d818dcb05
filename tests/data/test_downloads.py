"""Downloads: complete and verified or absent, resumed, and one sentence where a file cannot be downloaded."""

import hashlib
import io
import tarfile
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from codline.core.errors import DataError, StorageError
from codline.data import downloads
from codline.runtime import state_directory

CONTENT = bytes(range(256)) * 12_000  # three megabytes
MD5 = hashlib.md5(CONTENT).hexdigest()


class Server(ThreadingHTTPServer):
    """Serves one file, with the faults that a test sets."""

    content = CONTENT
    breaks_after: int | None = None  # bytes of a response after which the connection is closed
    supports_ranges = True
    errors: list[int]  # status codes for the first requests

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.errors, self.requests = [], []  # requests: their Range headers

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        requested = self.headers.get("Range")
        self.server.requests.append(requested)
        if self.server.errors:
            self.send_error(self.server.errors.pop(0))
            return
        is_range = requested and self.server.supports_ranges
        start = int(requested.removeprefix("bytes=").removesuffix("-")) if is_range else 0
        content = self.server.content
        if start and start >= len(content):
            self.send_error(416)
            return
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.end_headers()
        self.wfile.write(content[start:][: self.server.breaks_after])

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Server]:
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    monkeypatch.setenv("CODLINE_STATE_DIRECTORY", str(tmp_path / "scratch"))
    monkeypatch.setattr(downloads, "FIRST_PAUSE_SECONDS", 0.01)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True)
        thread.start()
        yield server
        server.shutdown()
        thread.join()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "raw" / "file.bin"


def names(path: Path) -> list[str]:
    return sorted(file.name for file in path.parent.iterdir())


def test_fetch_file_downloads_once_and_leaves_nothing_else(server: Server, path: Path) -> None:
    for _ in range(2):
        assert downloads.fetch_file(path, server.url, MD5) == path
    assert path.read_bytes() == CONTENT
    assert server.requests == [None]
    assert names(path) == ["file.bin"]


def test_fetch_file_writes_progress_notes_in_megabytes(server: Server, path: Path) -> None:
    downloads.fetch_file(path, server.url, MD5)
    note = state_directory.read_note("progress", "prepare")
    assert note
    assert (note["unit"], note["total"], note["file"]) == ("MB", 3, "file.bin")


def test_fetch_file_resumes_a_connection_that_breaks_repeatedly(server: Server, path: Path) -> None:
    server.breaks_after = 500_000
    downloads.fetch_file(path, server.url, MD5)
    assert path.read_bytes() == CONTENT
    assert server.requests == [None, *(f"bytes={done}-" for done in range(500_000, len(CONTENT), 500_000))]


def test_fetch_file_resumes_after_a_kill(server: Server, path: Path) -> None:
    path.parent.mkdir()
    path.with_name("file.bin.part").write_bytes(CONTENT[:1_000_000])
    downloads.fetch_file(path, server.url, MD5)
    assert path.read_bytes() == CONTENT
    assert server.requests == ["bytes=1000000-"]


def test_fetch_file_starts_over_with_a_server_without_range_requests(server: Server, path: Path) -> None:
    server.supports_ranges = False
    path.parent.mkdir()
    path.with_name("file.bin.part").write_bytes(CONTENT[:1_000_000])
    downloads.fetch_file(path, server.url, MD5)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize(
    "left", [b"of another file", CONTENT, CONTENT + b"and more"], ids=["other", "complete", "longer"]
)
def test_fetch_file_is_correct_for_any_partial_file(server: Server, path: Path, left: bytes) -> None:
    path.parent.mkdir()
    path.with_name("file.bin.part").write_bytes(left)
    downloads.fetch_file(path, server.url, MD5)
    assert path.read_bytes() == CONTENT
    assert names(path) == ["file.bin"]


def test_fetch_file_refuses_wrong_bytes_after_one_download(server: Server, path: Path) -> None:
    server.content = b"<html>please log in</html>"
    with pytest.raises(DataError) as refused:
        downloads.fetch_file(path, server.url, MD5)
    found = hashlib.md5(server.content).hexdigest()
    by_hand = f"put {server.url} (md5 {MD5}) there from another source"
    assert str(refused.value) == f"{path}: not found, and {server.url} sends other bytes (md5 {found}); {by_hand}"
    assert names(path) == []
    assert len(server.requests) == 1


def test_fetch_file_replaces_a_file_with_other_bytes(server: Server, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"half")
    downloads.fetch_file(path, server.url, MD5)
    assert path.read_bytes() == CONTENT


def test_fetch_file_retries_a_busy_server(server: Server, path: Path) -> None:
    server.errors = [503, 429, 500]
    downloads.fetch_file(path, server.url, MD5)
    assert path.read_bytes() == CONTENT
    assert len(server.requests) == 4


@pytest.mark.parametrize(("code", "requests"), [(404, 1), (503, downloads.MAX_FAILED_TRIES)])
def test_fetch_file_gives_up_after_a_final_error_or_some_tries(
    server: Server, path: Path, code: int, requests: int
) -> None:
    server.errors = [code] * 10
    with pytest.raises(DataError, match=rf"not found, and the download failed \({code} "):
        downloads.fetch_file(path, server.url, MD5)
    assert len(server.requests) == requests
    assert names(path) == []


def test_fetch_file_without_network_says_which_file_to_put_where(server: Server, path: Path) -> None:
    server.server_close()
    with pytest.raises(DataError) as refused:
        downloads.fetch_file(path, server.url, MD5)
    by_hand = f"put {server.url} (md5 {MD5}) there, or run again to go on with it"
    assert str(refused.value) == f"{path}: not found, and the download failed (Connection refused); {by_hand}"


def test_fetch_file_downloads_nothing_if_not_allowed(server: Server, path: Path) -> None:
    with pytest.raises(DataError) as refused:
        downloads.fetch_file(path, server.url, MD5, allowed=False)
    by_hand = f"put {server.url} (md5 {MD5}) there"
    assert str(refused.value) == f"{path}: not found, and prepare.dataset.download is false; {by_hand}"
    assert server.requests == []


def test_fetch_file_reports_a_full_disk_and_does_not_retry(server: Server, path: Path) -> None:
    path.parent.mkdir()
    path.with_name("file.bin.part").symlink_to("/dev/full")
    sentence = r"file\.bin: cannot be written: No space left on device; free some space and run again"
    with pytest.raises(StorageError, match=sentence):
        downloads.fetch_file(path, server.url, MD5)
    assert len(server.requests) == 1


def test_download_lock_refuses_a_root_that_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("not a folder")
    sentence = r"raw: cannot be written: File exists; prepare\.dataset\.root says where raw files go"
    with pytest.raises(StorageError, match=sentence), downloads.download_lock(tmp_path / "raw"):
        pass


def test_download_lock_waits_for_its_holder(tmp_path: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with downloads.download_lock(tmp_path):
            entered.set()

    with downloads.download_lock(tmp_path):
        other = threading.Thread(target=enter)
        other.start()
        assert not entered.wait(0.2)
    assert entered.wait(10)
    other.join()


def archive(*names: str) -> io.BytesIO:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz") as tar:
        for name in names:
            tar.addfile(tarfile.TarInfo(name))
    file.seek(0)
    return file


def test_extract_directory_extracts_nothing_else(tmp_path: Path) -> None:
    downloads.extract_directory(archive("./top/inner/a.txt", "top/b.txt", "elsewhere/c.txt"), tmp_path / "top")
    paths = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*"))
    assert paths == ["top", "top/b.txt", "top/inner", "top/inner/a.txt"]


def test_extract_directory_refuses_members_outside_and_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(tarfile.OutsideDestinationError):
        downloads.extract_directory(archive("top/a.txt", "top/../../b.txt"), tmp_path / "deep" / "top")
    assert [path.name for path in tmp_path.rglob("*")] == ["deep"]
