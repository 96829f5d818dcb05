"""Downloads: whole or not there, checked, resumed, and with one sentence where a file cannot be had."""

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
    """Serves one file, badly where it is told to."""

    content = CONTENT
    breaks_after: int | None = None  # bytes of an answer; then the connection is closed
    knows_ranges = True
    refusals: list[int]  # sent first, one for each request

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.refusals, self.asked = [], []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/file.bin"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted = self.headers.get("Range")
        self.server.asked.append(wanted)
        if self.server.refusals:
            self.send_error(self.server.refusals.pop(0))
            return
        start = int(wanted.removeprefix("bytes=").removesuffix("-")) if wanted and self.server.knows_ranges else 0
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
    monkeypatch.setenv("CODLINE_SCRATCH", str(tmp_path / "scratch"))
    monkeypatch.setattr(downloads, "PAUSE", 0.01)
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


def test_a_file_is_fetched_once_and_nothing_else_is_left(server: Server, path: Path) -> None:
    for _ in range(2):
        assert downloads.fetched(path, server.url, MD5) == path
    assert path.read_bytes() == CONTENT
    assert server.asked == [None]
    assert names(path) == ["file.bin"]


def test_progress_is_noted_in_megabytes(server: Server, path: Path) -> None:
    downloads.fetched(path, server.url, MD5)
    note = state_directory.read_note("progress", "prepare")
    assert note
    assert (note["unit"], note["total"], note["file"]) == ("MB", 3, "file.bin")


def test_a_connection_that_breaks_off_again_and_again_is_resumed_to_the_end(server: Server, path: Path) -> None:
    server.breaks_after = 500_000
    downloads.fetched(path, server.url, MD5)
    assert path.read_bytes() == CONTENT
    assert server.asked == [None, *(f"bytes={done}-" for done in range(500_000, len(CONTENT), 500_000))]


def test_what_a_killed_download_left_is_gone_on_with(server: Server, path: Path) -> None:
    path.parent.mkdir()
    path.with_name("file.bin.part").write_bytes(CONTENT[:1_000_000])
    downloads.fetched(path, server.url, MD5)
    assert path.read_bytes() == CONTENT
    assert server.asked == ["bytes=1000000-"]


def test_a_server_that_knows_no_ranges_sends_it_all_again(server: Server, path: Path) -> None:
    server.knows_ranges = False
    path.parent.mkdir()
    path.with_name("file.bin.part").write_bytes(CONTENT[:1_000_000])
    downloads.fetched(path, server.url, MD5)
    assert path.read_bytes() == CONTENT


@pytest.mark.parametrize("left", [b"of another file", CONTENT, CONTENT + b"and more"], ids=["other", "whole", "longer"])
def test_whatever_was_left_the_file_is_right_in_the_end(server: Server, path: Path, left: bytes) -> None:
    path.parent.mkdir()
    path.with_name("file.bin.part").write_bytes(left)
    downloads.fetched(path, server.url, MD5)
    assert path.read_bytes() == CONTENT
    assert names(path) == ["file.bin"]


def test_wrong_bytes_never_get_the_file_s_name(server: Server, path: Path) -> None:
    server.content = b"<html>please log in</html>"
    with pytest.raises(DataError) as refused:
        downloads.fetched(path, server.url, MD5)
    found = hashlib.md5(server.content).hexdigest()
    assert str(refused.value) == (
        f"{path}: not found, and {server.url} sends other bytes (md5 {found}); put {server.url} (md5 {MD5}) there from another source"
    )
    assert names(path) == []
    assert len(server.asked) == 1, "a large file is not fetched four times to be refused four times"


def test_a_file_with_other_bytes_is_replaced(server: Server, path: Path) -> None:
    path.parent.mkdir()
    path.write_bytes(b"half")
    downloads.fetched(path, server.url, MD5)
    assert path.read_bytes() == CONTENT


def test_a_server_that_is_busy_is_asked_again(server: Server, path: Path) -> None:
    server.refusals = [503, 429, 500]
    downloads.fetched(path, server.url, MD5)
    assert path.read_bytes() == CONTENT
    assert len(server.asked) == 4


@pytest.mark.parametrize(("code", "asked"), [(404, 1), (503, downloads.TRIES)])
def test_a_server_without_the_file_is_left_alone_after_some_tries(
    server: Server, path: Path, code: int, asked: int
) -> None:
    server.refusals = [code] * 10
    with pytest.raises(DataError, match=rf"not found, and the download failed \({code} "):
        downloads.fetched(path, server.url, MD5)
    assert len(server.asked) == asked
    assert names(path) == []


def test_without_network_one_sentence_says_what_to_put_where(server: Server, path: Path) -> None:
    server.server_close()
    with pytest.raises(DataError) as refused:
        downloads.fetched(path, server.url, MD5)
    assert str(refused.value) == (
        f"{path}: not found, and the download failed (Connection refused); put {server.url} (md5 {MD5}) there, or run again to go on with it"
    )


def test_what_may_not_be_downloaded_is_not(server: Server, path: Path) -> None:
    with pytest.raises(DataError) as refused:
        downloads.fetched(path, server.url, MD5, allowed=False)
    assert (
        str(refused.value)
        == f"{path}: not found, and prepare.dataset.download is false; put {server.url} (md5 {MD5}) there"
    )
    assert server.asked == []


def test_a_full_disk_is_named_and_what_has_come_is_kept(server: Server, path: Path) -> None:
    path.parent.mkdir()
    path.with_name("file.bin.part").symlink_to("/dev/full")
    with pytest.raises(
        StorageError, match=r"file\.bin: cannot be written: No space left on device; free some space and run again"
    ):
        downloads.fetched(path, server.url, MD5)
    assert len(server.asked) == 1


def test_a_root_that_is_a_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "raw").write_text("not a folder")
    with (
        pytest.raises(
            StorageError, match=r"raw: cannot be written: File exists; prepare\.dataset\.root says where raw files go"
        ),
        downloads.alone(tmp_path / "raw"),
    ):
        pass


def test_only_one_fetches_at_a_time(tmp_path: Path) -> None:
    entered = threading.Event()

    def enter() -> None:
        with downloads.alone(tmp_path):
            entered.set()

    with downloads.alone(tmp_path):
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


def test_a_folder_comes_out_of_an_archive_and_nothing_else_does(tmp_path: Path) -> None:
    downloads.unpacked(archive("./top/inner/a.txt", "top/b.txt", "elsewhere/c.txt"), tmp_path / "top")
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*")) == [
        "top",
        "top/b.txt",
        "top/inner",
        "top/inner/a.txt",
    ]


def test_an_archive_that_reaches_outside_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(tarfile.OutsideDestinationError):
        downloads.unpacked(archive("top/a.txt", "top/../../b.txt"), tmp_path / "deep" / "top")
    assert [path.name for path in tmp_path.rglob("*")] == ["deep"]
