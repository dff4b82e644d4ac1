"""A data folder of small files, and no access to the network."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from small_files import write_small

from fedldp.data.sources import SOURCES, PublishedDataset


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], PublishedDataset]:
    """Write a small version of a data set to tmp_path, and patch the published sizes to match
    it."""

    def write(name: str) -> PublishedDataset:
        small = write_small(name, tmp_path)
        monkeypatch.setitem(SOURCES, name, small)
        return small

    return write


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("the network was used")

    monkeypatch.setattr(socket.socket, "connect", refuse)
    monkeypatch.setattr(socket, "getaddrinfo", refuse)


@pytest.fixture
def real_data() -> Path:
    folder = os.environ.get("FEDLDP_DATA")
    if not folder:
        pytest.skip("FEDLDP_DATA names no folder with the published files")
    return Path(folder)
