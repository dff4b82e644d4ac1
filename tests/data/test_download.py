"""Downloads from a local server that breaks off, lies or ignores Range on request."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path

import httpx
import pytest
from small_files import published

from fedldp.core.errors import DataError, DataMissing
from fedldp.data import load_dataset
from fedldp.data.download import fetch
from fedldp.data.sources import SOURCES, PublishedDataset, PublishedFile

CONTENT = bytes(range(256)) * 4000
URL = "https://files.test"


@dataclass
class Server:
    """The server's files, its behaviour, and the requests it got.

    Attributes:
        break_after: after how many bytes a transfer breaks off.
        endless: whether it never stops sending.
    """

    files: dict[str, bytes] = field(default_factory=dict)
    understands_range: bool = True
    break_after: int | None = None
    endless: bool = False
    asked: list[tuple[str, str | None]] = field(default_factory=list)

    def answer(self, request: httpx.Request) -> httpx.Response:
        path, wanted = request.url.path, request.headers.get("Range")
        self.asked.append((path, wanted))
        content = self.files.get(path.removeprefix("/moved"))
        if content is None:
            return httpx.Response(404)
        if path.startswith("/moved"):
            return httpx.Response(302, headers={"Location": path.removeprefix("/moved")})
        # Some servers send this false header for .gz files; the file itself must be kept.
        headers, start = {"Content-Encoding": "gzip"}, 0
        if wanted and self.understands_range:
            start = int(wanted.removeprefix("bytes=").removesuffix("-"))
            headers["Content-Range"] = f"bytes {start}-{len(content) - 1}/{len(content)}"
        sent = self.sent(content[start:])
        status = 206 if "Content-Range" in headers else 200
        return httpx.Response(status, headers=headers, content=sent)

    def sent(self, content: bytes) -> Iterator[bytes]:
        yield content[: self.break_after]
        if self.break_after is not None:
            raise httpx.RemoteProtocolError("the server closed the connection")
        if self.endless:
            for _ in range(100):
                yield content
            pytest.fail("a hundred times the file's size was read")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Server:
    """Return a server that every client of HTTP reaches, in this process."""
    state, client = Server(), httpx.Client
    transport = httpx.MockTransport(state.answer)
    monkeypatch.setattr(httpx, "Client", lambda **how: client(transport=transport, **how))
    return state


@pytest.fixture
def one_file(server: Server, monkeypatch: pytest.MonkeyPatch) -> PublishedDataset:
    """A data set of one file, `small`, that the server has."""
    server.files["/good"] = CONTENT
    file = published("small.bin", CONTENT, f"{URL}/good")
    source = PublishedDataset("small", "home", "free", 1, 1, (1,), 2, "small", (file,))
    monkeypatch.setitem(SOURCES, "small", source)
    return source


def set_addresses(
    monkeypatch: pytest.MonkeyPatch, source: PublishedDataset, *addresses: str
) -> None:
    file = replace(source.files[0], addresses=addresses)
    monkeypatch.setitem(SOURCES, source.name, replace(source, files=(file,)))


def failure(tmp_path: Path, name: str = "small") -> str:
    with pytest.raises(DataMissing) as caught:
        fetch(name, tmp_path)
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.usefixtures("one_file")
@pytest.mark.parametrize(
    ("before", "asked"),
    [
        ({}, [("/good", None)]),
        ({"small.bin": CONTENT}, []),
        ({"small.bin": CONTENT[:-1] + b"?"}, [("/good", None)]),
        ({"small.bin.partial": b"not the start of the file"}, [("/good", "bytes=25-")]),
    ],
    ids=["nothing", "whole", "damaged", "of a server that ignores Range"],
)
def test_the_folder_then_has_the_file_alone(
    server: Server, tmp_path: Path, before: dict[str, bytes], asked: list[tuple[str, str | None]]
) -> None:
    """Whatever it had; a whole file needs no network."""
    server.understands_range = False
    (tmp_path / "small").mkdir()
    for name, content in before.items():
        (tmp_path / "small" / name).write_bytes(content)
    (path,) = fetch("small", tmp_path)
    assert path == tmp_path / "small" / "small.bin"
    assert path.read_bytes() == CONTENT
    assert list(path.parent.iterdir()) == [path]
    assert server.asked == asked


@pytest.mark.usefixtures("one_file")
def test_a_broken_download_is_resumed(server: Server, tmp_path: Path) -> None:
    server.break_after = 600_000
    line = failure(tmp_path)
    assert "small.bin" in line
    assert str(tmp_path / "small") in line
    assert f"{URL}/good" in line
    partial = tmp_path / "small" / "small.bin.partial"
    have = partial.stat().st_size
    assert 0 < have <= 600_000
    server.break_after = None
    (path,) = fetch("small", tmp_path)
    assert path.read_bytes() == CONTENT
    assert not partial.exists()
    assert server.asked == [("/good", None), ("/good", f"bytes={have}-")]


@pytest.mark.usefixtures("one_file")
def test_a_wrong_checksum_deletes_the_partial_file(server: Server, tmp_path: Path) -> None:
    server.files["/good"] = CONTENT[:-1] + b"?"
    line = failure(tmp_path)
    assert "checksum" in line
    assert "deleted" in line
    assert not list((tmp_path / "small").iterdir())
    server.files["/good"] = CONTENT
    assert fetch("small", tmp_path)[0].read_bytes() == CONTENT


@pytest.mark.usefixtures("one_file")
def test_an_endless_download_is_stopped(server: Server, tmp_path: Path) -> None:
    server.endless = True
    assert "wrong size" in failure(tmp_path)


def test_the_next_address_is_tried(
    server: Server, one_file: PublishedDataset, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server.files["/wrong"] = CONTENT[::-1]
    set_addresses(
        monkeypatch, one_file, f"{URL}/gone", f"{URL}/wrong", f"{URL}/moved/good",
    )  # fmt: skip
    assert fetch("small", tmp_path)[0].read_bytes() == CONTENT
    assert [path for path, _ in server.asked] == ["/gone", "/wrong", "/moved/good", "/good"]


@pytest.mark.usefixtures("one_file")
def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "small").write_text("a file where the folder should be")
    with pytest.raises(DataError, match="small cannot be stored in") as caught:
        fetch("small", tmp_path)
    assert "\n" not in str(caught.value)


def archive_of(members: dict[str, bytes], *extra: tarfile.TarInfo) -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            tar.addfile(info, io.BytesIO(content))
        for info in extra:
            tar.addfile(info)
    return buffer.getvalue()


@pytest.fixture
def archived(
    server: Server,
    install: Callable[[str], PublishedDataset],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> Callable[..., PublishedFile]:
    """Serve a small CIFAR-10 archive, changed as requested; the data folder lacks its files."""
    source = install("cifar10")
    members = {}
    for file in source.files:
        path = tmp_path / source.folder / file.name
        members[f"{source.folder}/{file.name}"] = path.read_bytes()
        path.unlink()

    def serve(changes: dict[str, bytes], *extra: tarfile.TarInfo) -> PublishedFile:
        content = archive_of(members | changes, *extra)
        server.files["/cifar.tar.gz"] = content
        archive = published("cifar-10-python.tar.gz", content, f"{URL}/cifar.tar.gz")
        monkeypatch.setitem(SOURCES, "cifar10", replace(source, archive=archive))
        return archive

    return serve


@pytest.mark.parametrize("of_user", [False, True])
def test_an_archive_is_unpacked_and_only_that_of_the_user_is_kept(
    archived: Callable[..., PublishedFile], server: Server, tmp_path: Path, of_user: bool
) -> None:
    archive = archived({})
    if of_user:
        (tmp_path / archive.name).write_bytes(server.files["/cifar.tar.gz"])
    fetch("cifar10", tmp_path)
    assert len(load_dataset("cifar10", data_dir=tmp_path).train) == 50
    kept = {archive.name} if of_user else set()
    assert {path.name for path in tmp_path.iterdir()} == {"cifar-10-batches-py"} | kept
    assert [path for path, _ in server.asked] == ([] if of_user else ["/cifar.tar.gz"])


def test_an_archive_cannot_write_elsewhere(
    archived: Callable[..., PublishedFile], tmp_path: Path
) -> None:
    link = tarfile.TarInfo("cifar-10-batches-py/link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc"
    archived(
        {"../evil": b"x", str(tmp_path / "absolute"): b"x", "cifar-10-batches-py/readme": b"x"},
        link,
    )
    fetch("cifar10", tmp_path / "data")
    written = {path.name for path in (tmp_path / "data").rglob("*")}
    assert written == {
        "cifar-10-batches-py",
        "test_batch",
        *(f"data_batch_{i}" for i in range(1, 6)),
    }
    assert not (tmp_path / "evil").exists()
    assert not (tmp_path / "absolute").exists()


def test_a_member_that_is_a_link_is_not_taken(
    archived: Callable[..., PublishedFile], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = tmp_path / "secret"
    secret.write_bytes(b"secret")
    archived({})
    names = [f"cifar-10-batches-py/{file.name}" for file in SOURCES["cifar10"].files]
    link = tarfile.TarInfo(names[0])
    link.type, link.linkname = tarfile.SYMTYPE, str(secret)
    content = archive_of({}, link)
    archive = published("cifar-10-python.tar.gz", content)
    (tmp_path / archive.name).write_bytes(content)
    monkeypatch.setitem(SOURCES, "cifar10", replace(SOURCES["cifar10"], archive=archive))
    with pytest.raises(DataError, match=r"cifar-10-batches-py/data_batch_1, .* missing or damaged"):
        fetch("cifar10", tmp_path)
    assert list((tmp_path / "cifar-10-batches-py").iterdir()) == []
