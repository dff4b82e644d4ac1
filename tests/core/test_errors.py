"""Errors carry what is decided by; their messages are for people only."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from fedldp.core.errors import DataMissing, FedldpError
from fedldp.data.tables import read_table
from fedldp.protocol.client_runtime import naming


def test_what_is_missing_is_known_without_its_remedy_and_in_another_process(tmp_path: Path) -> None:
    with pytest.raises(DataMissing) as found:
        read_table(tmp_path / "a; b.csv")
    again = pickle.loads(pickle.dumps(found.value))
    assert again.what == found.value.what == f"there is no file {tmp_path / 'a; b.csv'}"
    assert str(again) == str(found.value) != again.what


def test_a_round_and_a_client_are_named_once_but_another_one_too() -> None:
    with (
        pytest.raises(DataMissing, match=r"^round 2, client 1: round 2, client 0: gone$"),
        naming(2, 1),
        naming(2, 0),
        naming(2, 0),
    ):
        raise DataMissing("gone")
    with pytest.raises(FedldpError) as found, naming(2, 0):
        raise FedldpError("round 2, client 0: said by somebody else")
    assert found.value.place == (2, 0)
    assert str(found.value).startswith("round 2, client 0: round 2")
    assert pickle.loads(pickle.dumps(found.value)).place == (2, 0)
