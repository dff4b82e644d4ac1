"""Files that fedldp wrote at commit 5900278 can be read, continued and paid from forever.

See ``of_5900278/made_by.py``; its files are never made again.
"""

from __future__ import annotations

import json
import math
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

import fedldp
from fedldp.accounting.accountants import BudgetKind, from_record
from fedldp.accounting.events import PureReport, to_record
from fedldp.accounting.prices import price
from fedldp.core.errors import LedgerUnusable, OverBudget
from fedldp.deployment.agreement import check_stated, read_agreement
from fedldp.deployment.messages import Answered, Stranger, read_by_server
from fedldp.deployment.policy import SitePolicy, accepted_agreement, read_policy
from fedldp.deployment.site import Agent
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.protocol import Place
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.protocol.wire import Reason, Refusal, Report, read_reply
from fedldp.simulation.plan import problem_of
from gate import golden, reports

THERE = golden.FOLDER / "of_5900278"
KNOWN = json.loads((THERE / "known.json").read_text())
FINISHED = "fedavg-drawn"
CUT = sorted({path.stem for path in (THERE / "runs").glob("*.zip")} - {FINISHED})


def unpacked(name: str, place: Path) -> Path:
    with zipfile.ZipFile(THERE / f"{name}.zip") as packed:
        packed.extractall(place)
    for path in place.rglob("*"):
        path.chmod(0o700 if path.is_dir() else 0o600)
    return place


MADE_WITH = "1b973e6e85cd03f8"
"""The fingerprint of the arithmetic with which 5900278 made its runs; see ``golden.training``."""


def recorded(name: str) -> dict[str, Any]:
    """Return the record of the same run without an interruption."""
    document = golden.read(reports.path_of(name.partition("-")[0]))
    # If the records were made again on another machine, these runs continue to nearly the same.
    same = document["arithmetic"] == MADE_WITH
    return {"arithmetic": MADE_WITH if same else "of two machines", **document["runs"][name]}


# Runs


@pytest.mark.parametrize("name", CUT)
def test_an_interrupted_run_is_resumed(name: str, tmp_path: Path) -> None:
    folder = unpacked(f"runs/{name}", tmp_path / "run")
    before = recorded(name)
    with golden.one_core(), reports.watched() as (exchanges, states):
        result = fedldp.resume(folder)
    assert len(result.rounds) == 3
    assert len(states) == 1
    found = golden.as_read(
        {
            "arithmetic": golden.training(),
            "run": result.run,
            "statement": result.privacy,
            "released": reports.table(result.ledger.releases(result.run)),
            "exchanges": exchanges,
            "rounds": states,
            "kept": reports.kept(folder / "clients"),
        }
    )
    expected = {key: before[key] for key in found}
    expected["exchanges"] = expected["exchanges"][-len(exchanges) :]
    expected["rounds"] = expected["rounds"][-1:]
    assert exchanges
    assert list(reports.changes(expected, found)) == []


def test_some_interrupted_runs_have_what_a_resume_needs() -> None:
    """They refuse because of the ledgers' contents, and do not redraw what was drawn once."""
    refusals = recorded("ldp_fl-budget")["exchanges"]
    assert [bool(each["refused"]) for each in refusals] == [False, False, True]
    assert recorded("ldpfl")["kept"]
    assert set(recorded("priority_public")["rounds"][0]["digests"]) > {"weights"}


def test_a_finished_run_is_loaded(tmp_path: Path, fedldp_command: Callable[..., Any]) -> None:
    folder = unpacked(f"runs/{FINISHED}", tmp_path / "run")
    before = recorded(FINISHED)
    found = fedldp.load(folder)
    assert found.run == before["run"]
    assert [each.accuracy for each in found.rounds] == [r["accuracy"] for r in before["rounds"]]
    names = [*found.config.layout(problem_of(found.config, None)).split(np.zeros(650, np.float32))]
    weights = b"".join(found.weights[name].tobytes() for name in names)
    if before["arithmetic"] == golden.training():
        assert reports.digest(weights) == before["rounds"][-1]["digests"]["weights"]
    assert reports.table(found.ledger.releases(found.run)) == before["released"]
    outcome = fedldp_command("report", folder, "--out", tmp_path / "page.html")
    assert outcome.status == 0, outcome
    again = fedldp_command("run", "--resume", folder)
    assert again.status == 0, again


# Events


@pytest.mark.parametrize("known", json.loads((THERE / "events.json").read_text()))
def test_an_event_is_read_priced_and_kept_as_before(known: dict[str, Any]) -> None:
    event = from_record(known["record"])
    assert json.dumps(to_record(event)) == json.dumps(known["record"])  # a ledger hashes the text
    assert from_record(to_record(event)) == event
    prices = {kind: price(event, kind) for kind in get_args(BudgetKind)}
    finite = {kind: None if cost == math.inf else cost for kind, cost in prices.items()}
    assert list(golden.differences(known["prices"], finite, tolerance=1e-12)) == []


def test_the_name_of_a_class_is_kept_nowhere() -> None:
    event = PureReport(epsilon=1.0)
    before = PureReport.__name__
    try:
        PureReport.__name__ = "Renamed"
        assert to_record(event)["event"] == "PureReport"
        assert from_record(to_record(event)) == event
    finally:
        PureReport.__name__ = before


def test_every_event_of_that_version_is_among_them() -> None:
    names = {"TwoValuedBits", "PureCoordinates", "PureReport", "GaussianReport", "GaussianShare"}
    names |= {"SampledGaussian", "SampledClientsGaussian", "InClear", "NoData", "PerRecord"}
    names |= {"DrawnOnce", "Several"}
    records = json.loads((THERE / "events.json").read_text())
    assert {each["record"]["event"] for each in records} == names


# A site


@pytest.fixture
def policy(tmp_path: Path) -> SitePolicy:
    return read_policy(unpacked("north", tmp_path / "north") / "site.toml")


@pytest.fixture
def asked(tmp_path: Path) -> Path:
    return unpacked("asked", tmp_path / "asked")


def reply_of(agent: Agent, asked: Path, name: str) -> bytes:
    with golden.one_core():
        answered = read_by_server(agent.answer((asked / name).read_bytes()))
    assert isinstance(answered, Answered)
    return answered.answer


def test_an_earlier_sites_ledger_is_read(policy: SitePolicy) -> None:
    ledger = SqliteLedger(policy.ledger)
    found = [
        {
            "run": entry.run,
            "round": entry.round,
            "exchange": entry.phase,
            "event": to_record(entry.event),
            "cost": entry.cost,
            "hash": entry.hash,
        }
        for entry in ledger.verify()
    ]
    assert found == KNOWN["entries"]
    assert {"kind": ledger.budget.kind, "limit": ledger.budget.limit} == KNOWN["budget"]
    assert (ledger.spent(), ledger.remaining()) == (KNOWN["spent"], KNOWN["remaining"])


def test_a_second_budget_is_not_granted(policy: SitePolicy) -> None:
    for kind, limit in (("pure", 9000.0), ("pure", 10.0), ("zcdp", 3000.0)):
        with pytest.raises(LedgerUnusable, match="it was begun with a"):
            SqliteLedger(policy.ledger, Budget(kind, limit))
    text = policy.ledger.with_name("site.toml").read_text()
    raised = policy.ledger.with_name("raised.toml")
    raised.write_text(text.replace("limit = 3000.0", "limit = 9000.0"))
    with pytest.raises(LedgerUnusable, match="it was begun with a"):
        Agent(read_policy(raised))


def test_an_earlier_ledger_is_charged(policy: SitePolicy) -> None:
    """New releases add to the earlier ones, to the end of the budget and no further."""
    ledger = SqliteLedger(policy.ledger)
    event = next(entry.event for entry in ledger.releases())
    for round, spent in ((1, 2110.0), (2, 2760.0)):
        place = Place("another run", round, 0, bytes(32))
        assert ledger.check(place, event, [0]) == [None]
        assert ledger.release(place, event, [0], lambda: [b"a report"]) == [b"a report"]
        assert ledger.spent() == spent
    last = Place("another run", 3, 0, bytes(32))
    (verdict,) = ledger.check(last, event, [0])
    assert isinstance(verdict, OverBudget)
    with pytest.raises(OverBudget):
        ledger.release(last, event, [0], lambda: [b"a report"])
    assert SqliteLedger(policy.ledger).spent() == 2760.0


@pytest.mark.parametrize("name", ["ldp_fl", "ldpfl_sound"])
def test_earlier_agreements_stay_valid_and_are_accepted(
    name: str, policy: SitePolicy, fedldp_command: Callable[..., Any]
) -> None:
    digest = bytes.fromhex(KNOWN[name]["digest"])
    found = read_agreement(THERE / f"{name}.agreement")
    assert found.digest == digest
    check_stated(found)
    assert found.config.system == name
    served = accepted_agreement(policy, digest)
    assert served is not None
    assert list(policy.costs(served)) == KNOWN[name]["costs"]
    policy.accepted_as(digest).unlink()
    policy_file = policy.ledger.with_name("site.toml")
    agreement = THERE / f"{name}.agreement"
    outcome = fedldp_command("deploy", "accept", agreement, "--policy", policy_file, "--yes")
    assert outcome.status == 0, outcome
    assert digest.hex() in outcome.out
    assert policy.accepted_as(digest).read_bytes() == agreement.read_bytes()


def test_an_earlier_site_continues_where_it_was(policy: SitePolicy, asked: Path) -> None:
    agent, ledger = Agent(policy), SqliteLedger(policy.ledger)
    again = reply_of(agent, asked, "ldp_fl-2")
    assert again == (asked / "ldp_fl-2-answer").read_bytes()
    assert ledger.spent() == KNOWN["spent"]
    _, _, earlier = read_reply(reply_of(agent, asked, "ldp_fl-1"))
    assert earlier == Refusal(round=1, reason=Reason.NOT_KEPT)

    following = reply_of(agent, asked, "ldp_fl-3")
    _, _, report = read_reply(following)
    assert isinstance(report, Report)
    assert (report.round, report.size) == (3, 650)
    assert len(following) == len(again)
    assert following not in (again, (asked / "ldp_fl-3-answer").read_bytes())  # drawn afresh
    assert ledger.spent() == KNOWN["spent"] + 650
    assert reply_of(agent, asked, "ldp_fl-3") == following
    assert ledger.spent() == KNOWN["spent"] + 650


def test_an_event_drawn_once_is_paid_once(policy: SitePolicy, asked: Path) -> None:
    agent, ledger = Agent(policy), SqliteLedger(policy.ledger)
    found = reply_of(agent, asked, "ldpfl_sound-2")
    _, _, report = read_reply(found)
    assert isinstance(report, Report)
    assert len(found) == len((asked / "ldpfl_sound-2-answer").read_bytes())
    assert ledger.spent() == KNOWN["spent"]
    assert len(ledger.verify()) == len(KNOWN["entries"]) + 1
    assert reply_of(agent, asked, "ldpfl_sound-2") == found


def test_a_site_that_lost_its_draw_no_longer_takes_part(policy: SitePolicy, asked: Path) -> None:
    for path in (policy.state / "kept").rglob("*.safetensors"):
        path.unlink()
    body = (asked / "ldpfl_sound-2").read_bytes()
    assert isinstance(read_by_server(Agent(policy).answer(body)), Stranger)
    assert SqliteLedger(policy.ledger).spent() == KNOWN["spent"]
