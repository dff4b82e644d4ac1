"""The command that checks a user's own mechanism, part, system, event or attack."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from fedldp.accounting.accountants import ACCOUNTANTS
from fedldp.testing import mechanisms, systems


@pytest.fixture
def planted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Find the mistakes that are planted for the contracts, by few reports and checks."""
    monkeypatch.syspath_prepend(Path(__file__).with_name("testing"))
    from test_event_checks import ROWS, HalfTrue

    monkeypatch.setitem(ACCOUNTANTS, HalfTrue, ROWS[HalfTrue])
    monkeypatch.setattr(mechanisms, "TRIALS", 2000)
    monkeypatch.setattr(mechanisms, "SETTINGS", ((2.0, 1),))
    few = [each for each in systems.CHECKS if each.name == "length of a report"]
    monkeypatch.setattr(systems, "CHECKS", few)


@pytest.mark.slow
@pytest.mark.usefixtures("planted")
@pytest.mark.parametrize(
    ("subject", "line"),
    [
        ("planted_mechanisms:LessNoise", "mean and variance: the variance is"),
        ("planted_toy_systems:Half", "planted_toy_systems:half_size: length of a report: RunErr"),
        ("test_event_checks:HalfTrue", "law: epsilon is at least"),
        ("test_attack_checks:trains_itself", "only what is seen: "),
    ],
)
def test_a_broken_promise_has_a_line_with_its_remedy(
    subject: str, line: str, fedldp_command: Any
) -> None:
    more = ["--quick"] if subject.startswith("planted") else []
    found = fedldp_command("check", subject, *more)
    assert found.status == 1
    lines = found.out.splitlines()
    at = next(at for at, each in enumerate(lines) if each.startswith(f"fails           {line}"))
    assert lines[at + 1].strip().startswith("remedy: ")


@pytest.mark.slow
def test_a_correct_mechanism_and_a_correct_system_pass(fedldp_command: Any) -> None:
    found = fedldp_command("check", "two_point", "--quick", "--json")
    assert found.status == 0
    checks = json.loads(found.out)["checks"]
    assert {each["verdict"] for each in checks} == {"ok"}
    system = fedldp_command("check", "fedavg", "--json")
    assert system.status == 0
    assert {each["on"] for each in json.loads(system.out)["checks"]} == {"fedavg"}
