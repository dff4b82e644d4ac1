"""A site: the tables that it accepts, and what its agent answers to any request."""

from __future__ import annotations

import logging
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import (
    Environment,
    ask,
    content,
    limited,
    make_environment,
    request_of,
    write_policy,
)

from fedldp.algorithms.problem import Problem
from fedldp.core.bounding import Ranges
from fedldp.core.errors import DataError, FedldpError
from fedldp.data import read_table
from fedldp.deployment.acceptance import payable
from fedldp.deployment.agreeing import agree
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.checks import check_data, check_site
from fedldp.deployment.identity import make_identity, read_public
from fedldp.deployment.messages import (
    NO_RECEIPT,
    Ask,
    Stranger,
    pack,
    read_message,
)
from fedldp.deployment.policy import read_policy
from fedldp.deployment.site import Agent
from fedldp.deployment.status import status_of_site
from fedldp.protocol.wire import (
    Reason,
    Refusal,
    Report,
)
from fedldp.simulation.settings import resolve

ROWS = 200
SECRET = "4711"
BAD = {
    "a number that is missing": ("", "f", "no"),
    "a number that is text": (f"about {SECRET}", "f", "no"),
    "a category that is unknown": ("50", SECRET, "no"),
    "a label that is unknown": ("50", "m", SECRET),
}
TABLE = [
    "dataset=all.csv", "label_column=ill", 'classes=["no", "yes"]', "scale_columns={age=[0, 100]}",
    'categories={sex=["f", "m"]}', "model=logistic", "standardise=false", "num_clients=1",
    "rounds=5", "num_examples=",
]  # fmt: skip


@dataclass
class Site:
    """A site's folder, and the agreement that it is asked to accept."""

    folder: Path
    agreement: Agreement
    command: Any

    @property
    def file(self) -> Path:
        return self.folder / "site.toml"

    def write(self, bad: int, kind: str = "a number that is missing") -> None:
        """Write a table, some of whose rows do not fit."""
        good = ("50", "f", "yes")
        rows = [BAD[kind] if row < bad else good for row in range(ROWS)]
        lines = ["age,sex,ill", *(",".join(row) for row in rows)]
        (self.folder / "own.csv").write_text("\n".join(lines) + "\n")
        (self.folder / "own.csv").chmod(0o600)

    def accept(self, *more: Any) -> Any:
        file = self.folder / "run.agreement"
        return self.command("deploy", "accept", file, "--policy", self.file, "--yes", *more)

    def check(self) -> Any:
        return self.command("deploy", "site", self.file, "--check")

    def serves(self, agent: Agent) -> bool:
        return self.agreement.digest in agent.served()

    def agent(self) -> Agent:
        return Agent(read_policy(self.file))


@pytest.fixture
def site(tmp_path: Path, fedldp_command: Any) -> Site:
    make_identity(tmp_path / "site.key", tmp_path / "site.pub")
    problem = Problem((3,), 2, 1000, features=("age", "sex=f", "sex=m"))
    agreement = agree(
        resolve("quickstart", TABLE), problem, {"north": read_public(tmp_path / "site.pub")},
        channel="named", quorum=1, deadline_seconds=5.0,
    )  # fmt: skip
    (tmp_path / "run.agreement").write_bytes(agreement.to_bytes())
    write_policy(tmp_path, data="own.csv", label_column="ill")
    return Site(tmp_path, agreement, fedldp_command)


@pytest.mark.parametrize(
    ("kind", "bad"), [*zip(BAD, (11, 10, 11, 11), strict=True), (next(iter(BAD)), 0)]
)
def test_a_table_of_which_too_much_would_be_left_out_is_not_accepted(
    site: Site, kind: str, bad: int
) -> None:
    site.write(bad, kind)
    outcome = site.accept()
    column = {"n": "age", "c": "sex", "l": "ill"}[kind[2]]
    if bad <= 0.05 * ROWS:
        assert outcome.status == 0, outcome.err
        checked = site.check()
        said = f"{bad} of {ROWS} rows do not fit ({column}: lines {named(bad)})"
        assert (said in outcome.out) == (said in checked.out) == (bad > 0)
        assert "accepted   run" in checked.out
        assert site.serves(site.agent())
        return
    line = outcome.assert_refused()
    assert f"{bad} of {ROWS} rows do not fit ({column}: lines {named(bad)})" in line
    assert not (site.folder / "state").exists()


def test_the_share_is_the_policys(site: Site) -> None:
    site.write(30)
    assert "leave_out_at_most" in site.accept().assert_refused()
    text = site.file.read_text()
    site.file.write_text(f"leave_out_at_most = 0.15\n{text}")
    assert site.accept().status == 0
    site.file.write_text(f"leave_out_at_most = 0.1\n{text}")
    assert f"30 of 200 rows do not fit (age: lines {named(20)} and 10 more)" in site.check().out


def named(bad: int) -> str:
    """Return the lines of the first rows of a table, below its heading."""
    return ", ".join(map(str, range(2, 2 + bad)))


def test_only_the_accepted_table_is_served_whatever_is_in_its_rows(site: Site) -> None:
    """What the server sees depends on whether the file is the accepted one, and on nothing else."""
    site.write(3)
    assert site.accept().status == 0
    assert site.serves(site.agent())
    for bad in (0, 2, ROWS):  # better, and worse
        site.write(bad)
        assert not site.serves(site.agent())
        assert "NOT OK accepted" in site.check().out
        assert any("these are not the data" in each for each in _warnings(site))
    site.write(3)
    assert site.serves(site.agent())
    assert not any("these are not the data" in each for each in _warnings(site))


def _warnings(site: Site) -> list[str]:
    return [str(each) for each in status_of_site(read_policy(site.file))["warnings"]]


def test_a_table_that_changed_on_purpose_is_accepted_again(site: Site) -> None:
    site.write(3)
    assert site.accept().status == 0
    running = site.agent()
    assert site.serves(running)
    site.write(2)
    assert any("these are not the data" in each for each in _warnings(site))
    assert site.serves(running)  # it still has the accepted rows
    assert site.accept().status == 0
    assert not site.serves(running)  # whoever withdrew is used no longer
    assert site.serves(site.agent())


def test_a_table_that_changes_after_its_check_is_not_served(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def check_then_change(*given: Any) -> str:
        found = check_data(*given)
        site.write(ROWS)
        return found

    monkeypatch.setattr("fedldp.deployment.checks.check_data", check_then_change)
    site.write(3)
    assert site.accept().status == 0  # the operator was shown other rows
    assert not site.serves(site.agent())


def test_a_table_that_changes_while_it_is_read_is_refused(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change_then_read(path: Path) -> Any:
        site.write(4)
        return read_table(path)

    site.write(3)
    assert site.accept().status == 0
    monkeypatch.setattr("fedldp.deployment.source.read_table", change_then_read)
    with pytest.raises(DataError, match="changed while it was read"):
        site.agent()


@pytest.mark.parametrize(("paid", "kind"), [(0, "zcdp"), (4, "pure"), (7, "zcdp")])
def test_a_run_that_the_budget_cannot_pay_to_its_end_is_not_accepted(
    site: Site, paid: int, kind: str
) -> None:
    """The oracle is the ledger, which grants just as many rounds."""
    site.write(0)
    policy = write_policy(site.folder, data="own.csv", label_column="ill",
                          budget={"kind": kind, "limit": 1e9})  # fmt: skip
    cost, _ = policy.costs(site.agreement)
    policy = write_policy(site.folder, data="own.csv", label_column="ill",
                          budget={"kind": kind, "limit": (paid + 0.5) * cost})  # fmt: skip
    can_pay = payable(policy, site.agreement)
    assert (can_pay.paid, can_pay.of) == (min(paid, 5), 5)
    if paid < 5:
        line = site.accept().assert_refused()
        assert f"covers only {paid} of the 5 rounds" in line
        assert not (site.folder / "state").exists()
        assert site.accept("--rounds", paid + 1).status == 2
    if paid:
        found = site.accept("--rounds", min(paid, 5))
        assert found.status == 0
        of = "for the run" if paid >= 5 else f"for {paid} of its 5 rounds"
        assert f" {of}; " in found.out
    assert "give 1 to 5" in site.accept("--rounds", 6).assert_refused()


@pytest.mark.parametrize("limit", [1.2, 2.5, 3.0001])
def test_rounds_that_were_paid_count_and_the_ledger_grants_the_others(
    tmp_path: Path, limit: float
) -> None:
    env = limited(tmp_path, limit, "rounds=4", sites=1, enough=int(limit))
    agent, granted = env.agent(0), 0
    for round in range(1, 5):
        assert payable(env.policies[0], env.agreement).paid == int(limit)
        granted += isinstance(content(ask(agent, env, request_of(env, round))), Report)
    assert granted == int(limit)


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    return make_environment(tmp_path, seeded=False)


# Servers that lie


NOT_AGREED: list[tuple[Reason, dict[str, Any]]] = [
    (Reason.UNKNOWN_RUN, {"run": "0" * 32}),
    (Reason.WRONG_ROUND, {"round": 3}),
    (Reason.WRONG_ROUND, {"phase": 1}),
    (Reason.OUT_OF_RANGE, {"weights": np.zeros(3, np.float32), "ranges": None}),
    (Reason.OUT_OF_RANGE, {"ranges": Ranges(np.zeros(2), np.ones(2), (1, 649))}),
    (Reason.POLICY, {"ranges": None}),
]


def test_only_what_was_agreed_is_answered_and_once_in_each_round(env: Environment) -> None:
    agent, good = env.agent(0), request_of(env)
    for reason, changes in NOT_AGREED:
        refusal = content(ask(agent, env, request_of(env, **changes)))
        assert refusal.reason is reason, changes
    nan = np.frombuffer(good, np.uint8).copy()
    at = good.index(np.zeros(100, np.float32).tobytes())
    nan[at : at + 4] = np.frombuffer(np.float32(np.nan).tobytes(), np.uint8)
    zero = good.replace((1).to_bytes(8, "little"), bytes(8), 1)
    for body in (nan.tobytes(), zero, good[:-1], good + b"\0", b"x"):
        assert content(ask(agent, env, body)) == Refusal(0, Reason.MALFORMED)
    assert env.releases(0) == []
    first = ask(agent, env, good)
    assert isinstance(content(first), Report)
    spent = env.ledger(0).spent()
    assert spent > 0
    for again in (agent, env.agent(0)):
        assert ask(again, env, good).answer == first.answer
        other = request_of(env, weights=np.ones(env.agreement.layout.size, np.float32))
        assert content(ask(again, env, other)) == Refusal(1, Reason.ASKED_OTHERWISE)
    assert env.ledger(0).spent() == spent
    ask(agent, env, request_of(env, 2))
    assert isinstance(content(ask(agent, env, good)), Refusal)
    assert env.releases(0) == [(1, 0), (2, 0)]


def test_other_agreements_are_unknown_even_for_the_same_run(env: Environment) -> None:
    agent = env.agent(0)
    config = env.agreement.config.changed(epsilon=9.0)
    other = env.agreement.changed(config=config)
    assert other.digest != env.agreement.digest
    for digest in (other.digest, bytes(32)):
        body = pack(Ask(digest, NO_RECEIPT, request_of(env)))
        assert isinstance(read_message(agent.answer(body)), Stranger)
    for body in (b"", b"x", bytes(10_000), pack(Stranger()), agent.answer(b"")):
        assert isinstance(read_message(agent.answer(body)), Stranger)
    assert env.releases(0) == []


def test_agreements_with_a_seed_are_for_the_demo_only(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_environment(tmp_path)
    agent = Agent(env.policies[0])
    body = pack(Ask(env.agreement.digest, NO_RECEIPT, request_of(env)))
    assert isinstance(read_message(agent.answer(body)), Stranger)
    assert "which protects nothing" in caplog.text
    assert env.releases(0) == []


# Its disk


def test_a_ledger_that_cannot_be_read_refuses_in_a_normal_answer(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    agent = env.agent(0)
    receipt = ask(agent, env, request_of(env)).receipt
    env.policies[0].ledger.write_bytes(b"not a database, for a hundred bytes and more" * 9)
    for _ in range(20):
        answer = ask(agent, env, request_of(env, 2), receipt)
        assert content(answer) == Refusal(2, Reason.LEDGER)
        assert answer.receipt == receipt
    # A hello does not read the ledger: the time for that would reveal that it is being written.
    assert list(agent.served()) == [env.agreement.digest]
    assert agent.receipt(env.agreement.digest) == receipt
    assert len(caplog.records) < 10


def test_an_agents_files_are_readable_by_its_owner_only(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = os.umask(0o077)  # as ``running`` sets it
    try:
        ask(env.agent(0), env, request_of(env))
    finally:
        os.umask(before)
    policy = env.policies[0]
    made = [policy.ledger, policy.state, *policy.state.rglob("*")]
    assert len(made) > 3
    for path in made:
        assert path.stat().st_mode & 0o077 == 0, path


def test_garbage_between_requests_stops_nothing_and_the_log_stays_short(
    env: Environment, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    agent, digest, rng = env.agent(0), env.agreement.digest, np.random.default_rng(0)
    for round in (1, 2):
        for number in range(10):
            for odd in (
                pack(Ask(digest, NO_RECEIPT, request_of(env, 2, ranges=None))),
                rng.bytes(100),
                pack(Ask(rng.bytes(32), NO_RECEIPT, request_of(env))),
                pack(Ask(digest, NO_RECEIPT, request_of(env, 10 + number))),
                pack(Ask(digest, NO_RECEIPT, rng.bytes(300))),
            ):
                agent.answer(odd)
        assert isinstance(content(ask(agent, env, request_of(env, round))), Report)
    assert env.releases(0) == [(1, 0), (2, 0)]
    assert len(caplog.records) <= 12, caplog.text


def test_a_check_names_a_ledger_that_cannot_be_written(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = env.policies[0]
    monkeypatch.setattr("os.access", lambda path, mode: path != policy.ledger)
    bad = [found.what for found in check_site(policy) if not found.ok]
    assert any(f"{policy.ledger}: the agent cannot write there" in what for what in bad)


def test_an_unwritable_state_folder_is_refused_in_one_line(env: Environment) -> None:
    policy = env.policies[0].model_copy(update={"state": env.policies[0].data / "below"})
    with pytest.raises(FedldpError) as found:
        Agent(policy)
    assert "\n" not in str(found.value)
