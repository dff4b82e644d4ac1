"""Checks of the JSON that commands print, for the tests of the command line."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedldp.core.facts import Assumption, Caveat, Doubt, Fact, Method, NoGuarantee
from fedldp.core.kinds import SIMULATED

SHORT = ("--workers", "1", "--set", "rounds=1", "--set", "num_clients=5", "--set", "local_epochs=1")


def document(text: str) -> Any:
    """Return the single JSON document in a text, refusing NaN."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is no JSON")

    return json.loads(text, parse_constant=refuse)


def kinds(facts: Any) -> list[str]:
    """Return the kinds of facts in JSON."""
    return [fact["kind"] for fact in facts]


def run_folders(where: Path) -> list[Path]:
    return [path.parent for path in where.rglob("config.json")]


RUN_KEYS = ["recipe", "system", "seed", "config", "rounds", "final", "privacy", "seconds",
            "run_dir", "tested_on", "confusion", "doubts", "noise", "figures"]  # fmt: skip
FIGURES = ["auc", "average_precision", "balanced_accuracy", "brier", "calibration_error"]
OF_CLASSES = ["f1_macro", "client_accuracy", "worst_tenth_accuracy"]
ROUND_KEYS = ["round", "clients", "accuracy", "loss", "uplink_bits_per_client", "seconds",
              *FIGURES, *OF_CLASSES]  # fmt: skip
GUARANTEE_KEYS = ["unit", "adversary", "neighbours", "kind", "epsilon", "delta", "lower", "method",
                  "reason", "assumptions", "stated_by", "text"]  # fmt: skip
UNITS = {"weight", "record", "person", "client-round", "client-run"}


def check_fact(fact: Any, family: type[Fact]) -> None:
    assert list(fact) == ["kind", "values", "text"]
    assert family.from_json(fact).is_known
    assert isinstance(fact["text"], str)


def check_statement(statement: Any) -> None:
    assert list(statement) == ["schema_version", "claim", "guarantees", "warnings"]
    assert statement["schema_version"] == 2
    claim = statement["claim"]
    if claim is not None:
        assert sorted(claim) == ["delta", "epsilon", "source", "unit"]
        assert claim["unit"] in UNITS
    for guarantee in statement["guarantees"]:
        assert list(guarantee) == GUARANTEE_KEYS
        assert guarantee["unit"] in UNITS
        assert guarantee["adversary"] in {
            "server", "shuffled-server", "summing-server", "downlink"}  # fmt: skip
        assert guarantee["neighbours"] in {"replace-client", "replace-person", "replace-record"}
        assert guarantee["kind"] in {"pure", "approximate", "none"}
        nothing = guarantee["kind"] == "none"
        assert (guarantee["epsilon"] is None) == (guarantee["method"] is None) == nothing
        for assumption in guarantee["assumptions"]:
            check_fact(assumption, Assumption)
        if nothing:
            check_fact(guarantee["reason"], NoGuarantee)
        else:
            check_fact(guarantee["method"], Method)
            assert guarantee["reason"] is None
        assert guarantee["stated_by"] == "fedldp"
    for warning in statement["warnings"]:
        check_fact(warning, Caveat)
    assert SIMULATED.kind in kinds(statement["warnings"])


def check_run(found: Any, rounds: int) -> None:
    assert list(found) == RUN_KEYS
    assert [record["round"] for record in found["rounds"]] == list(range(1, rounds + 1))
    for record in found["rounds"]:
        assert list(record) == ROUND_KEYS
        assert 0 <= record["accuracy"] <= 1
    final = {key: found["rounds"][-1][key] for key in ("accuracy", "loss", *FIGURES, *OF_CLASSES)}
    assert found["final"] == final | {"most_frequent": found["final"]["most_frequent"]}
    assert found["seconds"] == pytest.approx(sum(r["seconds"] for r in found["rounds"]))
    measured = {each["metric"]: each for each in found["figures"]}
    for doubt in (*found["doubts"], *measured["accuracy"]["doubts"]):
        check_fact(doubt, Doubt)
    assert measured["accuracy"]["value"] == found["final"]["accuracy"]
    assert measured["accuracy"]["baseline"] == found["final"]["most_frequent"]
    check_statement(found["privacy"])
