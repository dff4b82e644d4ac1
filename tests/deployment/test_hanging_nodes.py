"""A SuperNode that waits for a ClientApp that has died is found and restarted."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedldp.deployment import parties
from fedldp.deployment.flower_processes import is_waiting
from fedldp.deployment.loopback import Loopback
from fedldp.deployment.parties import Running

IN = b"SuperNode ID: 7\n"
TAKES = b"[RUN 1]\nReceiving: query message (ID: a)\n"
TOOK = TAKES + b"Received successfully\nStart `flwr-clientapp` process\n"
SENT = b"[RUN 1]\nSending: query message (ID: b)\nSent successfully\n"


@pytest.mark.parametrize(
    ("log", "waits"),
    [
        (b"", False),
        (IN, False),
        (IN + TAKES, False),
        (IN + TOOK, True),
        (IN + TOOK + SENT, False),
        (IN + TOOK + SENT + TOOK, True),
        (IN + TOOK + b"Failed to send message b: gone\n", False),
        (IN + TOOK + b"Run ID 1 is not in `RUNNING` status. Ignoring reply message b.\n", False),
        (IN + TOOK + b"Starting Flower SuperNode\n" + IN, False),
    ],
)
def test_whether_a_node_waits_is_read_from_its_log(log: bytes, waits: bool) -> None:
    assert is_waiting(log) is waits


def test_a_node_without_a_clientapp_waits_in_vain(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = Loopback(tmp_path, [tmp_path / "a", tmp_path / "b", tmp_path / "c"], tmp_path / "s")
    loop._ports = {"superlink": 1, "supernode-0": 2, "supernode-1": 3, "supernode-2": 4}
    for name in loop._ports:
        (tmp_path / f"{name}.log").write_bytes(IN + TOOK)
    alive = dict.fromkeys(["superlink", "supernode-0", "supernode-1", "clientapp-1"], 1)
    monkeypatch.setattr(loop, "processes", lambda: alive)
    assert loop.without_clientapp() == ["supernode-0"]


class Flower:
    """A Flower that has lost the processes named by a test."""

    def __init__(self) -> None:
        self.lost: list[str] = []
        self.restarted: list[str] = []

    def without_clientapp(self) -> list[str]:
        return self.lost

    def restart(self, name: str) -> None:
        self.restarted.append(name)


def test_a_node_that_has_waited_in_vain_too_long_is_restarted(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parties, "_GONE", 10.0)
    flower: Any = Flower()
    told: list[str] = []
    nobody: Any = None
    running = Running(nobody, told.append, flower)
    for now in range(0, 60, 6):  # between two ClientApps, a node has none for a moment
        flower.lost = ["supernode-1"] if now % 12 else []
        running._mend_flower(float(now))
    assert flower.restarted == []
    flower.lost = ["supernode-1"]
    for now in range(60, 78, 6):
        running._mend_flower(float(now))
    assert flower.restarted == ["supernode-1"]
    assert told == ["supernode-1 was waiting for a ClientApp that is gone: restarted it"]


def test_nodes_are_restarted_one_by_one_and_wait_only_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(parties, "_GONE", 10.0)
    flower: Any = Flower()
    nobody: Any = None
    running = Running(nobody, lambda what: None, flower)
    flower.lost = ["supernode-0", "supernode-2"]
    for now in (0, 6, 12):
        running._mend_flower(float(now))
    flower.lost = ["supernode-2"]
    running._mend_flower(18.0)
    assert flower.restarted == ["supernode-0", "supernode-2"]
