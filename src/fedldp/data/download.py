"""Fetch published files: interrupted downloads are resumed, and files are checked before use."""

from __future__ import annotations

import sys
import tarfile
import zlib
from collections.abc import Callable
from pathlib import Path
from shutil import copyfileobj

import httpx
from rich.console import Console
from rich.progress import Progress

from fedldp.core.errors import DataError, DataMissing
from fedldp.data.folder import checksum_status, resolve_data_dir
from fedldp.data.sources import PublishedDataset, PublishedFile, find_source

_CHUNK_BYTES = 1 << 18
_TIMEOUT_SECONDS = 30.0


def fetch(name: str, data_dir: Path | None = None) -> list[Path]:
    """Download a data set's files, unless they are complete, and check each one's SHA-256.

    A download goes to NAME.partial and is resumed from there; the file gets its name only after the
    check. Bytes that fail the check are deleted. Each address is tried once, in order.

    Args:
        name: a built-in data set.
        data_dir: the data folder; see resolve_data_dir.

    Returns:
        The paths of all the data set's files; empty if the data set comes with this package.

    Raises:
        ConfigError: there is no data set of that name.
        DataMissing: no address served the file; the message names the file, the folder, the
            addresses and the reasons.
        DataError: a file cannot be written, or is missing from the archive.
    """
    source = find_source(name)
    root = resolve_data_dir(data_dir)
    folder = root / source.folder
    wanted = [f for f in source.files if checksum_status(folder / f.name, f) != "ok"]
    if wanted:
        bar = Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
        client = httpx.Client(follow_redirects=True, timeout=_TIMEOUT_SECONDS)
        try:
            with bar, client:
                _obtain(source, wanted, root, client, bar)
        except OSError as error:
            reason = f"{error.strerror or error}: {error.filename or folder}"
            raise DataError(f"{source.name} cannot be stored in {folder} ({reason})") from None
    return [folder / file.name for file in source.files]


def _obtain(
    source: PublishedDataset,
    wanted: list[PublishedFile],
    root: Path,
    client: httpx.Client,
    bar: Progress,
) -> None:
    if source.archive is None:
        for file in wanted:
            _download(file, root / source.folder, client, bar)
        return
    archive = root / source.archive.name
    brought_by_user = checksum_status(archive, source.archive) == "ok"
    if not brought_by_user:
        _download(source.archive, root, client, bar)
    _extract(archive, wanted, root / source.folder)
    if not brought_by_user:
        archive.unlink()


def _download(file: PublishedFile, folder: Path, client: httpx.Client, bar: Progress) -> None:
    """Try each address until one has given the complete file, then move it into place."""
    partial = folder / f"{file.name}.partial"
    task = bar.add_task(file.name, total=file.size)
    failures = []
    for address in file.addresses:
        try:
            _stream(address, partial, file.size, client, lambda n: bar.update(task, completed=n))
        except httpx.HTTPError as error:
            reason = " ".join(str(error).split()) or type(error).__name__
            failures.append(f"{address}: {reason}")
            continue
        if checksum_status(partial, file) == "ok":
            partial.replace(folder / file.name)
            return
        partial.unlink()
        failures.append(f"{address}: wrong size or checksum, so the download was deleted")
    raise DataMissing(
        f"{file.name} could not be fetched into {folder} ({'; '.join(failures)})",
        "run the command again to resume, or put the file there by hand",
    )


def _stream(
    address: str,
    partial: Path,
    size: int,
    client: httpx.Client,
    report: Callable[[int], None],
) -> None:
    """Append the rest of `size` bytes to `partial`; start over if the server cannot resume.

    Raises:
        httpx.HTTPError: the address cannot be reached, refuses the request, or ends the transfer
        early.
    """
    have = partial.stat().st_size if partial.exists() else 0
    if have >= size:
        return  # an earlier download was interrupted after its last byte, before the check
    # Request the bytes as stored, because a .gz file must not be unpacked in transit.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={have}-"} if have else {})
    with client.stream("GET", address, headers=headers) as response:
        if response.status_code not in (httpx.codes.OK, httpx.codes.PARTIAL_CONTENT):
            raise httpx.HTTPError(f"HTTP status {response.status_code}")
        resumed = response.headers.get("Content-Range", "").startswith(f"bytes {have}-")
        if not (resumed and response.status_code == httpx.codes.PARTIAL_CONTENT):
            have = 0
        partial.parent.mkdir(parents=True, exist_ok=True)  # not before there is something to keep
        with partial.open("ab" if have else "wb") as out:
            for chunk in response.iter_raw(_CHUNK_BYTES):
                out.write(chunk)
                have += len(chunk)
                report(have)
                if have > size:
                    return  # the wrong file: stop writing; the check will refuse it


def _extract(archive: Path, wanted: list[PublishedFile], folder: Path) -> None:
    """Extract only the wanted files, by exact name, from an archive.

    Raises:
        DataError: the archive is damaged or lacks one of them.
    """
    missing = {f"{folder.name}/{file.name}": file for file in wanted}
    folder.mkdir(parents=True, exist_ok=True)
    try:
        with tarfile.open(archive, "r:gz") as tar:
            for member in tar:
                stream = tar.extractfile(member) if member.isfile() else None
                if stream is None or member.name not in missing:
                    continue
                file = missing[member.name]
                partial = folder / f"{file.name}.partial"
                with stream, partial.open("wb") as out:
                    copyfileobj(stream, out)
                if checksum_status(partial, file) == "ok":
                    partial.replace(folder / file.name)
                    del missing[member.name]
                else:
                    partial.unlink()
    except (tarfile.TarError, EOFError, zlib.error) as error:
        raise DataError(f"{archive} is damaged ({error}); delete it and fetch again") from None
    if missing:
        raise DataError(
            f"{archive}: {', '.join(missing)} missing or damaged; fetch the archive again"
        )
