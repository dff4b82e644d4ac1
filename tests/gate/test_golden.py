"""The gate can fail: a changed number is found on any machine."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gate import golden, record

DOCUMENT = {"lines": [{"epsilon": 1.5, "rounds": 3, "method": "Theorem 2"}, {"epsilon": None}]}


def copy(**changes: Any) -> dict[str, Any]:
    first, second = DOCUMENT["lines"]
    return {"lines": [{**first, **changes}, second]}


def found(other: Any, tolerance: float | None) -> list[str]:
    return list(golden.differences(DOCUMENT, other, tolerance=tolerance))


@pytest.mark.parametrize("tolerance", [None, 1e-12])
@pytest.mark.parametrize(
    ("other", "expected"),
    [
        (copy(epsilon=1.5 + 1e-9), ["/lines/0/epsilon: 1.5 -> 1.500000001"]),
        (copy(epsilon=None), ["/lines/0/epsilon: 1.5 -> null"]),
        (copy(rounds=4), ["/lines/0/rounds: 3 -> 4"]),
        (copy(rounds=3.0), ["/lines/0/rounds: 3 -> 3.0"]),
        (copy(rounds=True), ["/lines/0/rounds: 3 -> true"]),
        (copy(method="Theorem 3"), ['/lines/0/method: "Theorem 2" -> "Theorem 3"']),
        (copy(stated_by="fedldp"), ['/lines/0/stated_by: new -> "fedldp"']),
        ({"lines": DOCUMENT["lines"][:1]}, ['/lines/1: {"epsilon": null} -> gone']),
        ({"lines": [*DOCUMENT["lines"], 1]}, ["/lines/2: new -> 1"]),
        ({"lines": {}}, None),
        ({}, None),
    ],
)
def test_a_change_is_found(other: Any, expected: list[str] | None, tolerance: float) -> None:
    assert found(DOCUMENT, tolerance) == []
    lines = found(other, tolerance)
    assert len(lines) == 1
    assert expected is None or lines == expected


def test_a_different_order_of_keys_is_found() -> None:
    (line,) = golden.differences({"a": 1, "b": 2}, {"b": 2, "a": 1})
    assert line == ": the order of keys ['a', 'b'] -> ['b', 'a']"


def test_the_last_digit_counts_with_the_same_arithmetic() -> None:
    nearly = copy(epsilon=1.5 * (1 + 2**-52))
    assert len(found(nearly, None)) == 1
    assert found(nearly, 1e-12) == []
    assert len(found(copy(epsilon=1.5 * (1 + 1e-10)), 1e-11)) == 1
    lower = {"lower": 1.5}, {"lower": 1.5 * (1 + 1e-10)}
    assert list(golden.differences(*lower, tolerance=1e-11)) == []
    assert len(list(golden.differences(*lower))) == 1
    one, other = {"arithmetic": "this", **DOCUMENT}, {"arithmetic": "this", **nearly}
    assert len(list(golden.changes(one, other))) == 1
    assert list(golden.changes({**one, "arithmetic": "another"}, other)) == []
    more = {**copy(rounds=4), "arithmetic": ""}
    assert len(list(golden.changes({**one, "arithmetic": "another"}, more))) == 1


def test_a_fingerprint_identifies_the_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    assert golden.arithmetic.__wrapped__() == golden.arithmetic()
    assert golden.training.__wrapped__() == golden.training()
    exp = golden.np.exp
    monkeypatch.setattr(golden.np, "exp", lambda x: golden.np.nextafter(exp(x), 9))
    assert golden.arithmetic.__wrapped__() != golden.arithmetic()


def test_recording_shows_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path, old = tmp_path / "system.json", tmp_path / "removed.json"
    now = {"arithmetic": "this", "epsilon": 2.0}
    monkeypatch.setattr(record, "PARTS", {"x": (lambda: iter([(path, now)]), golden.changes)})
    golden.write(path, {**now, "epsilon": 1.0})
    golden.write(old, now)
    assert record.main(["--check"]) == 1
    folder = tmp_path.name
    shown = (
        f"{folder}/system.json: /epsilon: 1.0 -> 2.0\n{folder}/removed.json: gone\n2 differences"
    )
    assert capsys.readouterr().out == f"{shown}\n"
    assert golden.read(path)["epsilon"] == 1.0
    assert record.main([]) == 0
    assert capsys.readouterr().out == f"{shown} recorded\n"
    assert golden.read(path) == now
    assert not old.exists()
    assert record.main(["--check"]) == 0
