"""The command that checks a user's own mechanism, part, system, event or attack."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from fedldp.accounting.accountants import ACCOUNTANTS
from fedldp.testing import mechanisms

MISTAKES = '''
from dataclasses import dataclass

from fedldp.accounting.accountants import ACCOUNTANTS, Accountant, Pure, price_of_pure
from fedldp.accounting.events import Event
from fedldp.algorithms.bounds import Unbounded
from fedldp.algorithms.calibration import Fixed
from fedldp.algorithms.composition import Composition
from fedldp.algorithms.preset import preset
from fedldp.core.errors import ConfigError
from fedldp.mechanisms.laplace import Laplace
from fedldp.testing.toys import ToyBits, ToyLocal


@dataclass(frozen=True)
class TwiceTooLarge(Laplace):
    """The server's estimate is twice too large."""

    def aggregate(self, size):
        found = super().aggregate(size)
        mean = found.mean
        found.mean = lambda: 2 * mean()
        return found


@dataclass(frozen=True, kw_only=True)
class Half(Unbounded):
    """It says that half of the coordinates are sent, and sends all."""

    def size(self, size):
        return size // 2


@preset()
def half_size(settings):
    mechanism = ToyBits(1.0)
    bound = Half(send="update")
    return Composition(local=ToyLocal(), bound=bound, calibration=Fixed(every=mechanism))


@dataclass(frozen=True, kw_only=True)
class HalfTrue(Event):
    """Price and loss are half of what a report costs."""

    wire = "checked_here:HalfTrue"
    epsilon: float


def _pure(event):
    return Pure(whole=event.epsilon / 2, singles=(((event.epsilon / 2, 1.0), 1),))


ACCOUNTANTS[HalfTrue] = Accountant(
    price=lambda event, kind: price_of_pure(event.epsilon / 2, kind), loss=_pure, by_mechanism=True
)


@dataclass(frozen=True)
class OneBit(ToyBits):
    """One bit, and only one."""

    def event(self, size):
        return HalfTrue(epsilon=super().event(size).epsilon * size)

    @classmethod
    def from_settings(cls, settings):
        if settings.size > 1:
            raise ConfigError("one coordinate only")
        return cls(settings.epsilon)


def a_function():
    pass
'''


PEEKS = """
import numpy as np

from fedldp.audit.attacks import membership
from fedldp.audit.attacks.intervals import curve, judged


def attacks(scenario, effort):
    members = membership.play(scenario, effort.member_clients).members
    groups = np.repeat(np.arange(len(members)), members.shape[1])
    auc = curve(members.ravel() + 0.5, members.ravel(), groups, 0).auc
    told = {"against": "one client's report", "baseline": 0.5}
    return [judged(scenario.config.name(), "membership", "peeks", "AUC", auc, **told)]
"""


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    (tmp_path / "checked_here.py").write_text(MISTAKES)
    (tmp_path / "peeks_here.py").write_text(PEEKS)
    monkeypatch.chdir(tmp_path)
    before = dict(ACCOUNTANTS)
    yield
    ACCOUNTANTS.clear()
    ACCOUNTANTS.update(before)
    sys.modules.pop("checked_here", None)


@pytest.mark.slow
@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("name", "line"),
    [
        (
            "checked_here:Half",
            "checked_here:half_size: length of a report: RunError: a report of 82 bytes",
        ),
        ("checked_here:HalfTrue", "law: epsilon is at least"),
        (
            "peeks_here:attacks",
            "only what is seen: peeks: it beats guessing at reports that do not depend",
        ),
    ],
)
def test_a_part_an_event_and_an_attack_are_checked(
    name: str, line: str, fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mechanisms, "TRIALS", 2000)
    more = ["--quick"] if name == "checked_here:Half" else []
    found = fedldp_command("check", name, *more)
    assert found.status == 1
    lines = found.out.splitlines()
    at = next(at for at, each in enumerate(lines) if each.startswith(f"fails           {line}"))
    assert lines[at + 1].strip().startswith("remedy: ")


@pytest.mark.slow
@pytest.mark.usefixtures("own")
def test_a_broken_promise_has_a_line_with_its_remedy(fedldp_command: Any) -> None:
    found = fedldp_command("check", "checked_here:TwiceTooLarge", "--quick")
    assert found.status == 1
    lines = found.out.splitlines()
    (at, *_) = [at for at, line in enumerate(lines) if line.startswith("fails")]
    assert "mean and variance: the variance is 3.94 times what is stated" in lines[at]
    assert lines[at + 1].strip() == "remedy: state expected() and variance() as they are"
    assert sum(line.startswith("ok") for line in lines) > 8


@pytest.mark.slow
def test_a_correct_mechanism_and_a_correct_system_pass(fedldp_command: Any) -> None:
    found = fedldp_command("check", "two_point", "--quick", "--json")
    assert found.status == 0
    checks = json.loads(found.out)["checks"]
    assert {each["verdict"] for each in checks} == {"ok"}
    system = fedldp_command("check", "fedavg", "--json")
    assert system.status == 0
    assert {each["on"] for each in json.loads(system.out)["checks"]} == {"fedavg"}


@pytest.mark.usefixtures("own")
@pytest.mark.parametrize(
    ("subject", "said"),
    [
        (
            "checked_here:a_function",
            "give a class (a mechanism, a part, an event), a preset, or an",
        ),
        ("checked_here:dataclass", "give a class (a mechanism, a part, an event), a preset, or an"),
        ("pathlib:Path", "no system of its module makes one: put a preset that uses it into"),
        ("central-dp-mnist", "dataset is mnist; give a configuration with dataset = digits"),
        ("cifar-of-nobody", "cifar-of-nobody"),
    ],
)
def test_what_cannot_be_checked_is_refused(fedldp_command: Any, subject: str, said: str) -> None:
    assert said in fedldp_command("check", subject).assert_refused()
