"""The command that checks a user's own mechanism or system."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

MISTAKES = '''
from dataclasses import dataclass

from fedldp.mechanisms.laplace import Laplace


@dataclass(frozen=True)
class TwiceTooLarge(Laplace):
    """The server's estimate is twice too large."""

    def aggregate(self, size):
        found = super().aggregate(size)
        mean = found.mean
        found.mean = lambda: 2 * mean()
        return found


def a_function():
    pass
'''


@pytest.fixture
def own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "checked_here.py").write_text(MISTAKES)
    monkeypatch.chdir(tmp_path)


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
        ("checked_here:a_function", "neither a mechanism nor a system"),
        ("central-dp-mnist", "dataset is mnist; give a configuration with dataset = digits"),
        ("cifar-of-nobody", "cifar-of-nobody"),
    ],
)
def test_what_cannot_be_checked_is_refused(fedldp_command: Any, subject: str, said: str) -> None:
    assert said in fedldp_command("check", subject).assert_refused()
