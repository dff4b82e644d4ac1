"""A disk that fails at any write of a site's store: told as that, and nothing paid for is lost."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import (
    Environment,
    ask,
    assert_each_once,
    bits,
    content,
    make_environment,
    request_of,
)
from safetensors import SafetensorError

from fedldp.core.errors import StoreUnusable
from fedldp.protocol import client_store
from fedldp.protocol.client_store import FolderStore
from fedldp.protocol.wire import Reason, Refusal, Report

FULL: dict[str, Callable[[], Exception]] = {
    "os": lambda: OSError(28, "No space left on device"),
    "safetensors": lambda: SafetensorError("IoError: No space left on device"),
}


SOUND = ("mechanism=nearest_direction", "num_examples=90")


class Faults:
    """Fails the nth write below a folder, once; counts all writes there.

    Attributes:
        nth: which write fails, counted from 1; 0 for none.
        count: how many writes there were.
    """

    def __init__(self, patch: pytest.MonkeyPatch, below: Path, nth: int, error: str) -> None:
        self.nth, self.count = nth, 0
        self._below, self._error = below, error
        for owner, name in ((client_store, "save_file"), (client_store, "sync"), (os, "link")):
            patch.setattr(owner, name, self._failing(getattr(owner, name)))

    def _failing(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*given: Any, **named: Any) -> Any:
            if any(isinstance(each, Path) and each.is_relative_to(self._below) for each in given):
                self.count += 1
                if self.count == self.nth:
                    raise FULL[self._error]()
            return real(*given, **named)

        return call


def environment(folder: Path, kind: str) -> Environment:
    if kind == "sum":
        return make_environment(folder, channel="sum")
    return make_environment(folder, *SOUND, recipe="ldpfl-sound-digits")


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    found = {}
    for kind in ("sum", "once"):
        env = environment(tmp_path_factory.mktemp(kind), kind)
        found[kind] = bits(env.serve(env.pipe()))
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "nth", "error"),
    [
        ("once", 1, "os"),
        ("once", 5, "safetensors"),
        ("once", 11, "os"),
        ("sum", 2, "os"),
        ("sum", 9, "safetensors"),
        ("sum", 17, "os"),
        ("sum", 38, "safetensors"),
    ],
)
def test_a_disk_that_is_full_at_any_write_delays_a_run_and_changes_nothing(
    tmp_path: Path, kind: str, nth: int, error: str,
    expected: dict[str, dict[str, bytes]],
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    env = environment(tmp_path, kind)
    with monkeypatch.context() as patch:
        faults = Faults(patch, env.policies[0].state / "kept", nth, error)
        pipe = env.pipe()
        served = env.server().serve(pipe, lambda record: None, None)
    assert faults.count >= nth
    assert bits(served) == expected[kind]
    if kind == "sum":
        assert_each_once(env, pipe)
    assert "training or encoding failed" not in caplog.text
    said = [record.getMessage() for record in caplog.records if "kept" in record.getMessage()]
    assert all("No space left on device" in each and "free space" in each for each in said)
    assert said
    assert not list(env.policies[0].state.rglob("*.partial"))


def test_a_disk_that_stays_full_is_refused_at_no_cost(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_environment(tmp_path, *SOUND, recipe="ldpfl-sound-digits")
    agent, request = env.agent(0), request_of(env)
    with monkeypatch.context() as patch:
        patch.setattr(client_store, "save_file", _full)
        for _ in range(3):
            assert content(ask(agent, env, request)) == Refusal(1, Reason.LEDGER)
    assert env.releases(0) == []
    assert isinstance(content(ask(agent, env, request)), Report)
    assert "training or encoding failed" not in caplog.text


def _full(*given: Any) -> None:
    raise SafetensorError("IoError: No space left on device")


def test_a_damaged_file_of_a_store_is_told_as_that(tmp_path: Path) -> None:
    store = FolderStore(tmp_path, "run")
    store.arrays("mine", lambda: {"a": np.zeros(3)})
    (path,) = tmp_path.glob("*/mine.safetensors")
    path.write_bytes(b"damaged")
    for read in (lambda: store.known("mine"), lambda: store.arrays("mine", dict)):
        with pytest.raises(StoreUnusable, match=r"cannot be read.*restore the folder") as found:
            read()
        assert "\n" not in str(found.value)
