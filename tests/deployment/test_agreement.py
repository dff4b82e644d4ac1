"""Agreements: what can be agreed on, refusals in one line, and the document that all parties
pin."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from fedldp.accounting import guarantees
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.facts import Assumption, Caveat, Method, NoGuarantee, in_order
from fedldp.core.kinds import (
    FRESH,
    GAUSSIAN,
    HELD_OUT,
    KEEPS_NOTHING,
    NOT_PURE,
    RESTS_ON,
    SIMULATED,
    SMALLEST_COMMITTEE,
    SPENT,
    TAKES_PART,
)
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement, check_stated
from fedldp.deployment.agreement import agreed as held

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
        again = Agreement.read(path)
        assert again.digest == found.digest
        assert again.document == found.document
        again.check()
        check_stated(again)
        compact = json.dumps(json.loads(found.to_bytes()), separators=(",", ":")).encode()
        assert Agreement.parse(compact).digest == found.digest


def test_every_run_has_its_own_name_and_every_term_changes_the_digest() -> None:
    found = agreed()
    assert agreed().run != found.run
    assert len(bytes.fromhex(found.run)) == 16
    turned = (*found.sites[1:], found.sites[0])
    others = [
        found.changed(config=found.config.changed(epsilon=2.0)),
        found.changed(problem=Problem((1, 8, 8), 10, 1438)),
        found.changed(channel="sum"),
        found.changed(sites=turned),
        found.changed(quorum=4),
        found.changed(deadline_seconds=601.0),
        found.changed(test_seed=0),
        found.changed(initial="0" * 64),
        found.changed(statement={}),
        found.changed(version="0.1.99"),
        agreed(),
    ]
    assert len({found.digest, *(each.digest for each in others)}) == 1 + len(others)


def test_a_users_model_is_assumed_to_keep_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(Path(__file__).parents[1])
    kept = KEEPS_NOTHING(setting="model", of="own_models:dense")
    rests_on = RESTS_ON(assumption=kept, of="code")
    assert not RESTS_ON.is_in(agreed().planned.warnings)
    found = agreed(quick(model="own_models:dense"))
    check_stated(found)
    assert rests_on in found.planned.warnings
    proven = [line for line in found.planned.guarantees if line.kind != "none"]
    assert proven
    assert all(kept in line.assumptions for line in proven)
    unassumed = each_line(found.planned, lambda line: {"assumptions": line.assumptions - {kept}})
    assert "another" in refusal(check_stated, stating(found, unassumed))


def each_line(statement: Statement, changes: Callable[[Guarantee], dict[str, Any]]) -> Statement:
    lines = (replace(line, **changes(line)) for line in statement.guarantees)
    return replace(statement, guarantees=tuple(lines))


def times(factor: float, *names: str) -> Callable[[Statement], Statement]:
    """Return a function that multiplies some numbers of each line that has them."""

    def changes(line: Guarantee) -> dict[str, Any]:
        values = {name: getattr(line, name) for name in names}
        return {name: value and value * factor for name, value in values.items()}

    return lambda stated: each_line(stated, changes)


def assuming(*more: Assumption) -> Callable[[Statement], Statement]:
    return lambda stated: each_line(
        stated, lambda line: {"assumptions": line.assumptions | {*more}}
    )


def proven_by(method: Method) -> Callable[[Statement], Statement]:
    return lambda stated: each_line(stated, lambda line: {"method": line.method and method})


def stating(agreement: Agreement, statement: Statement) -> Agreement:
    """Return the agreement as another party would have made it from another statement."""
    return agreement.changed(statement=json.loads(json.dumps(held(statement))))


@pytest.fixture(scope="module")
def made() -> Iterator[Agreement]:
    """Return an agreement with a claim, many assumptions, and two warnings that bind."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(Path(__file__).parents[1])
        yield agreed(quick(model="own_models:dense"), channel="sum")


LATER = (("digits", 3),)
INFORMING = [
    proven_by(GAUSSIAN),
    proven_by(Method("of-a-later-version", LATER)),
    lambda stated: stated.warning(HELD_OUT, SPENT(unit="client", kind="pure", spent=1.5)),
    lambda stated: replace(stated, warnings=stated.warnings[::-1]),
    times(1 - 5e-7, "epsilon", "lower"),
    times(1 + 5e-7, "delta"),
]
FALSE = [
    times(0.99999, "epsilon", "lower"),
    times(0.99999, "delta"),
    times(0.99999, "lower"),
    assuming(TAKES_PART(rounds=1)),
    assuming(Assumption("of-a-later-version", LATER)),
    lambda stated: each_line(stated, lambda line: {"assumptions": line.assumptions - {FRESH}}),
    lambda stated: stated.warning(Caveat("of-a-later-version", LATER)),
    lambda stated: stated.warning(SMALLEST_COMMITTEE),
    lambda stated: replace(stated, warnings=stated.warnings[1:]),
    lambda stated: replace(stated, warnings=(SIMULATED,)),
    lambda stated: replace(stated, claim=replace(stated.claim, epsilon=0.5)),
    lambda stated: replace(stated, claim=None),
    lambda stated: replace(stated, guarantees=stated.guarantees[1:]),
]


@pytest.mark.parametrize("change", INFORMING, ids=range(len(INFORMING)))
def test_another_proof_of_the_same_or_more_that_only_informs_is_accepted(
    made: Agreement, change: Any
) -> None:
    other = change(made.planned)
    assert other != made.planned
    check_stated(stating(made, other))


def test_another_order_of_kinds_is_accepted(
    made: Agreement, monkeypatch: pytest.MonkeyPatch
) -> None:
    here = made.planned.to_json()
    monkeypatch.setattr(guarantees, "in_order", lambda facts: in_order(facts)[::-1])
    assert made.planned.to_json() != here
    check_stated(made)


@pytest.mark.parametrize("change", FALSE, ids=range(len(FALSE)))
def test_an_agreement_that_states_something_else_is_refused(made: Agreement, change: Any) -> None:
    other = change(made.planned)
    assert other != made.planned
    assert "its statement differs" in refusal(check_stated, stating(made, other))


@pytest.mark.parametrize("reason", [NOT_PURE, NoGuarantee("of-a-later-version", LATER)])
def test_another_reason_why_nothing_is_proven_is_refused(reason: NoGuarantee) -> None:
    clear = agreed(find_recipe("fedavg-quickstart").config.changed(num_clients=4, rounds=2))
    check_stated(clear)
    other = each_line(clear.planned, lambda line: {"reason": line.reason and reason})
    assert "its statement differs" in refusal(check_stated, stating(clear, other))


@pytest.mark.parametrize(
    ("other", "fits"),
    [("0.1.0", True), ("0.1.9", True), ("0.2.0", False), ("1.1.0", False), ("0.10.0", False)],
)
def test_all_parties_have_the_same_version_up_to_patches(other: str, fits: bool) -> None:
    document = json.loads(agreed().to_bytes())
    assert document["version"] == version("fedldp")
    found = Agreement.parse(json.dumps({**document, "version": other}).encode())
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
    rounds = [line for line in found.planned.guarantees if line.unit == "client-round"]
    assert min(line.epsilon or math.inf for line in rounds) <= 100.0


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
        found = Agreement.parse(json.dumps(document).encode())
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
        found = Agreement.read(path)
        found.check()
        check_stated(found)
        assert found.digest

    line = refusal(used)
    assert line.isprintable()


def test_files_that_cannot_be_read_are_refused(tmp_path: Path) -> None:
    large = tmp_path / "large"
    with large.open("wb") as file:
        file.truncate(1 << 30)
    assert "more than" in refusal(Agreement.read, large)
    assert "agreement" in refusal(Agreement.read, tmp_path / "none")
    assert "agreement" in refusal(Agreement.read, tmp_path)
    with pytest.raises(ConfigError):
        Agreement.parse(b"\xff\xfe")


def test_the_statement_is_for_the_fewest_sites_that_may_take_part() -> None:
    few, all_of_them = agreed(channel="sum", quorum=3), agreed(channel="sum", quorum=4)
    by_unit = [
        {
            line.unit: line.epsilon
            for line in each.planned.guarantees
            if line.adversary == "summing-server"
        }
        for each in (few, all_of_them)
    ]
    assert by_unit[0].keys() == by_unit[1].keys() != set()
    assert all(by_unit[0][unit] > by_unit[1][unit] for unit in by_unit[0])
