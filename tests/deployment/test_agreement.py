"""Agreements: what can be agreed on, refusals in one line, and the document that all parties
pin."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import find_recipe, recipes
from fedldp.algorithms.systems import KEEPS_NOTHING, systems
from fedldp.core.errors import ConfigError, FedldpError
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


def on_digits(name: str) -> RunConfig | None:
    """Return a recipe changed to four sites and digits; None if its lists are for more clients."""
    config = recipes()[name].config
    if any(isinstance(getattr(config, each), list) for each in config.per_client):
        return None
    fewer = {"untrusted_clients": min(config.untrusted_clients, 3)}
    return config.changed(
        dataset="digits",
        num_clients=4,
        clients_per_round=None,
        rounds=2,
        num_examples=None,
        **fewer,
    )


def tried(config: RunConfig, channel: str) -> Agreement | str:
    """Return an agreement, or the reason for a refusal; any other error fails the test."""
    try:
        return agreed(config, channel)
    except FedldpError as error:
        return str(error)


@pytest.mark.slow
def test_every_recipe_is_agreed_on_or_refused_in_one_line() -> None:
    # All in one test: two hundred separate tests would take longer than what they test.
    works: set[tuple[str, str]] = set()
    seen: set[str] = set()
    for name in recipes():
        config = on_digits(name)
        for channel in () if config is None else ("named", "sum"):
            assert config is not None
            kind = repr((channel, sorted(config.model_dump().items(), key=str)))
            if kind in seen:
                continue
            seen.add(kind)
            found = tried(config, channel)
            if isinstance(found, Agreement):
                works.add((config.name(), channel))
                assert found.statement["guarantees"], name
            else:
                assert "\n" not in found, name
    assert {("ldp_fl", "named"), ("ldp_fl", "sum"), ("secure_aggregation", "sum")} <= works
    assert {("fedavg", "named"), ("nbafl", "named"), ("cldp_fed", "named")} <= works
    assert not {("secure_aggregation", "named"), ("fedavg", "sum"), ("nbafl", "sum")} & works
    assert {name for name, _ in works} <= set(systems())


@pytest.mark.parametrize(
    ("recipe", "channel", "part"),
    [
        ("dp-sgd-digits", "named", "private for real numbers only"),
        ("privunit-fl-digits", "named", "private for real numbers only"),
        ("central-dp-digits", "named", "its server's noise is private for real numbers only"),
        ("cldp-fed-digits", "sum", "set channel = named"),
        ("fedavg-quickstart", "sum", "set channel = named"),
        ("secure-aggregation-digits", "named", "set channel = sum"),
    ],
)
def test_systems_that_cannot_be_deployed_are_refused_with_the_reason(
    recipe: str, channel: str, part: str
) -> None:
    config = on_digits(recipe)
    assert config is not None
    assert part in refusal(agreed, config, channel)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"channel": "shuffle"}, ("channel = shuffle", "channel = sum")),
        ({"epsilon": [1.0, 2.0, 3.0, 4.0]}, ("epsilon has a value for each client",)),
        (
            {"target": {"unit": "weight", "epsilon": 1.0, "adversary": "shuffled-server"}},
            ("target", "shuffled-server"),
        ),
    ],
    ids=["shuffle", "list", "target"],
)
def test_settings_for_simulations_only_are_refused(
    settings: dict[str, Any], parts: tuple[str, ...]
) -> None:
    def both() -> Agreement:
        return agreed(quick(**settings))

    line = refusal(both)
    assert all(part in line for part in parts), line


@pytest.mark.parametrize(
    ("channel", "given", "part"),
    [
        ("named", {"quorum": 0}, "quorum = 0"),
        ("named", {"quorum": 5}, "quorum = 5"),
        ("named", {"quorum": -1}, "quorum = -1"),
        ("sum", {"quorum": 2}, "= 2: give more than half"),
        ("sum", {"quorum": 5}, "quorum = 5"),
        ("named", {"deadline_seconds": 0.5}, "deadline_seconds = 0.5"),
        ("named", {"deadline_seconds": math.inf}, "deadline_seconds = inf"),
        ("named", {"deadline_seconds": math.nan}, "deadline_seconds = nan"),
        ("named", {"problem": Problem((7,), 10, 100)}, ""),
    ],
)
def test_terms_out_of_range_are_refused(channel: str, given: dict[str, Any], part: str) -> None:
    if "problem" in given:
        agreed(channel=channel, **given)  # a row of numbers is fine
        return
    assert part in refusal(agreed, channel=channel, **given)


@pytest.mark.parametrize(
    ("sites", "part"),
    [
        ({}, ""),
        ({"a": "0" * 64, "b": "0" * 64}, "two sites have the key"),
        ({"a": "0" * 63}, "its key is malformed"),
        ({"a": "G" * 64}, "its key is malformed"),
        ({"": "0" * 64}, "its name is malformed"),
        ({"../a": "0" * 64}, "its name is malformed"),
        ({"a\n": "0" * 64}, "its name is malformed"),
        ({"a" * 10_000: "0" * 64}, "its name is malformed"),
        ({"\x1b[31m": "0" * 64}, "its name is malformed"),
    ],
    ids=range(9),
)
def test_bad_rosters_are_refused(sites: dict[str, str], part: str) -> None:
    line = refusal(agree, quick(), DIGITS, sites, channel="named")
    assert part in line
    assert line.isprintable()


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
    {"config": {"channel": None}},
    {"config": {"seed": 3}},
    {"config": {"client_budget": {"limit": 9.0, "kind": "pure"}}},
    {"config": {"num_clients": 5}},
    {"config": {"epsilon": 5.0}},
    {"config": {"rounds": 3}},
    {"channel": "sum"},
    {"quorum": 5},
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
        ("{", ""),
        ("{", "[" * 100_000),
        ('"agreement": 1', '"agreement": 2'),
        ('"agreement": 1', '"agreement": 1, "more": 1'),
        ('"deadline_seconds": 600.0', '"deadline_seconds": NaN'),
        ('"deadline_seconds": 600.0', '"deadline_seconds": 1e400'),
        ('"statement": {', '"statement": {"x": 1e400, '),
        ('"statement": {', '"statement": {"x": NaN, '),
        ('"quorum": 3', '"quorum": 1e400'),
        ('"quorum": 3', '"quorum": ' + "9" * 5000),
        ('"quorum": 3', '"quorum": "3x"'),
        ('"system": "ldp_fl"', '"system": ["ldp_fl"]'),
        ('"system": "ldp_fl"', '"system": "no"'),
        ('"num_classes": 10', '"num_classes": 1'),
        ('"run": "', '"run": "../'),
        ('"config": {', '"config": {"__class__": 1, '),
        ('"model": "', '"model": "\\ud800'),
        ('"model": "', '"model": "\\u001b[2J'),
        ('"statement": {', '"statement": {"\\u001b[2J": 1, '),
    ],
    ids=range(19),
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
