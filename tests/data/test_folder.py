from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import platformdirs
import pytest

from fedldp.data import resolve_data_dir, sources, verify
from fedldp.data.sources import SOURCES, PublishedDataset

pytestmark = pytest.mark.usefixtures("no_network")


def test_data_folder_argument_then_variable_then_cache(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FEDLDP_DATA", "/from/variable")
    assert resolve_data_dir(tmp_path) == tmp_path
    assert resolve_data_dir(None) == Path("/from/variable")
    monkeypatch.setenv("FEDLDP_DATA", "")
    assert resolve_data_dir(None) == Path(platformdirs.user_cache_dir("fedldp"))
    monkeypatch.setenv("HOME", str(tmp_path))
    assert resolve_data_dir(Path("~/data")) == tmp_path / "data"


def test_verify_distinguishes_ok_missing_and_damaged(
    install: Callable[[str], PublishedDataset], tmp_path: Path
) -> None:
    source = install("mnist")
    images, labels, test_images, test_labels = (
        tmp_path / "mnist" / file.name for file in source.files
    )
    content = bytearray(images.read_bytes())
    content[100] ^= 1  # the size stays the same, so only the checksum shows the damage
    images.write_bytes(content)
    labels.unlink()
    test_images.write_bytes(test_images.read_bytes() + b"x")
    assert verify("mnist", tmp_path) == {
        images: "damaged",
        labels: "missing",
        test_images: "damaged",
        test_labels: "ok",
    }


def test_every_published_file_can_be_named_checked_and_fetched() -> None:
    for source in SOURCES.values():
        for file in (*source.files, *([source.archive] if source.archive else [])):
            assert len(file.sha256) == 64
            assert file.size > 0
            assert Path(file.name).name == file.name
            assert all(urlsplit(a).scheme in ("http", "https") for a in source.addresses(file))
            assert source.addresses(file)
    assert sources.find_source("fashion-mnist") is SOURCES["fmnist"]
