"""Agreements: what can be agreed on, refusals in one line, and the document that all parties
pin."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.kinds import KEEPS_NOTHING
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import (
    Agreement,
    check_stated,
    parse_agreement,
    read_agreement,
)

SITES = {f"site-{index}": f"{index:064x}" for index in range(1, 5)}
DIGITS = Problem((1, 8, 8), 10, 1437)


def quick(**settings: Any) -> RunConfig:
    return find_recipe("quickstart").config.changed(**{"num_clients": 4, "rounds": 2, **settings})


def agreed(config: RunConfig | None = None, channel: Any = "named", **given: Any) -> Agreement:
    found = quick() if config is None else config
    return agree(found, given.pop("problem", DIGITS), SITES, channel=channel, **given)


def refusal(call: Any, *given: Any, **named: Any) -> str:
    with pytest.raises(FedldpError) as found:
        call(*given, **named)
    line = str(found.value)
    assert line
    assert "\n" not in line
    assert len(line) < 1000
    return line


def test_a_sum_of_one_site_is_refused_and_a_named_report_of_one_is_not() -> None:
    one = {"a": "0" * 64}
    refusal(agree, quick(), DIGITS, one, channel="sum")
    assert agree(quick(), DIGITS, one, channel="named").quorum == 1


def test_the_document_is_read_back_unchanged(tmp_path: Path) -> None:
    for channel in ("named", "sum"):
        found = agreed(channel=channel)
        path = tmp_path / channel
        path.write_bytes(found.to_bytes())
        again = read_agreement(path)
        assert again.digest == found.digest
        assert again.document == found.document
        again.check()
        check_stated(again)
        compact = json.dumps(json.loads(found.to_bytes()), separators=(",", ":")).encode()
        assert parse_agreement(compact).digest == found.digest


def test_every_run_has_its_own_name_and_every_term_changes_the_digest() -> None:
    found = agreed()
    assert agreed().run != found.run
    assert len(bytes.fromhex(found.run)) == 16
    turned = (*found.sites[1:], found.sites[0])
    others = [
        replace(found, config=found.config.changed(epsilon=2.0)),
        replace(found, problem=Problem((1, 8, 8), 10, 1438)),
        replace(found, channel="sum"),
        replace(found, sites=turned),
        replace(found, quorum=4),
        replace(found, deadline_seconds=601.0),
        replace(found, test_seed=0),
        replace(found, initial="0" * 64),
        replace(found, statement={}),
        replace(found, version="0.1.99"),
        agreed(),
    ]
    assert len({found.digest, *(each.digest for each in others)}) == 1 + len(others)


def test_a_users_model_is_assumed_to_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    assert not any(KEEPS_NOTHING in each for each in agreed().statement["warnings"])
    found = agreed(quick(model="own_models:dense"))
    check_stated(found)
    proven = [line for line in found.statement["guarantees"] if line["kind"] != "none"]
    assert proven
    assert all(any(KEEPS_NOTHING in x for x in line["assumptions"]) for line in proven)
    unassumed = json.loads(json.dumps(found.statement))
    for line in unassumed["guarantees"]:
        line["assumptions"] = [x for x in line["assumptions"] if KEEPS_NOTHING not in x]
    assert "another" in refusal(check_stated, replace(found, statement=unassumed))


@pytest.mark.parametrize(
    ("other", "fits"),
    [("0.1.0", True), ("0.1.9", True), ("0.2.0", False), ("1.1.0", False), ("0.10.0", False)],
)
def test_all_parties_have_the_same_version_up_to_patches(other: str, fits: bool) -> None:
    document = json.loads(agreed().to_bytes())
    assert document["fedldp"] == version("fedldp")
    found = parse_agreement(json.dumps({**document, "fedldp": other}).encode())
    if fits:
        found.check()
    else:
        words = refusal(found.check)
        assert f"fedldp = {other}" in words
        assert f"install fedldp {'.'.join(other.split('.')[:2])}" in words


def test_sites_are_told_only_what_they_need() -> None:
    config = agreed(quick(seed=77, client_budget={"limit": 1.0})).config.model_dump()
    assert config["seed"] == 0
    assert config["client_budget"] is None


def test_a_target_is_calibrated_before_the_agreement() -> None:
    target = {"unit": "client-round", "epsilon": 100.0, "adversary": "server"}
    found = agreed(quick(target=target))
    assert found.config.target is None
    rounds = [g for g in found.statement["guarantees"] if g["unit"] == "client-round"]
    assert min(g["epsilon"] for g in rounds) <= 100.0


CHANGES: list[dict[str, Any]] = [
    {"config": {"epsilon": [1.0, 9.0, 9.0, 9.0]}},  # the statement would show the first one
    {"config": {"channel": "shuffle"}},
    {"config": {"seed": 3}},
    {"config": {"client_budget": {"limit": 9.0, "kind": "pure"}}},
    {"config": {"num_clients": 5}},
    {"config": {"epsilon": 5.0}},
    {"channel": "sum"},
    {"statement": {}},
    {"statement": {"guarantees": [], "claim": None, "warnings": []}},
]


@pytest.mark.parametrize("change", CHANGES, ids=lambda change: str(change)[:40])
def test_a_hand_written_document_is_checked_again(change: dict[str, Any]) -> None:
    document = json.loads(agreed().to_bytes())
    for name, value in change.items():
        document[name] = {**document[name], **value} if name == "config" else value

    def checked() -> None:
        found = parse_agreement(json.dumps(document).encode())
        found.check()
        check_stated(found)

    refusal(checked)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("{", "[" * 100_000),
        ('"agreement": 1', '"agreement": 2'),
        ('"deadline_seconds": 600.0', '"deadline_seconds": NaN'),
        ('"statement": {', '"statement": {"x": 1e400, '),
        ('"quorum": 3', '"quorum": ' + "9" * 5000),
        ('"system": "ldp_fl"', '"system": "no"'),
        ('"num_classes": 10', '"num_classes": 1'),
        ('"run": "', '"run": "../'),
        ('"config": {', '"config": {"__class__": 1, '),
        ('"model": "', '"model": "\\ud800'),
        ('"statement": {', '"statement": {"\\u001b[2J": 1, '),
    ],
    ids=range(11),
)
def test_a_damaged_document_is_refused_in_one_line(old: str, new: str, tmp_path: Path) -> None:
    text = agreed().to_bytes().decode()
    assert old in text
    path = tmp_path / "agreement"
    path.write_text(text.replace(old, new, 1))

    def used() -> None:
        found = read_agreement(path)
        found.check()
        check_stated(found)
        assert found.digest

    line = refusal(used)
    assert line.isprintable()


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    assert "more than" in refusal(read_agreement, large)
    assert "agreement" in refusal(read_agreement, tmp_path / "none")
    assert "agreement" in refusal(read_agreement, tmp_path)
    with pytest.raises(ConfigError):
        parse_agreement(b"\xff\xfe")


def test_the_statement_is_for_the_fewest_sites_that_may_take_part() -> None:
    few, all_of_them = agreed(channel="sum", quorum=3), agreed(channel="sum", quorum=4)
    by_unit = [
        {g["unit"]: g["epsilon"] for g in each.statement["guarantees"]
         if g["adversary"] == "summing-server"}
        for each in (few, all_of_them)
    ]  # fmt: skip
    assert by_unit[0].keys() == by_unit[1].keys() != set()
    assert all(by_unit[0][unit] > by_unit[1][unit] for unit in by_unit[0])
