"""What cannot be read is unknown: no output of a deployment shows a default as a fact.

Each test takes one source away from a server or a site of which everything is known, and looks at
every output: each value is the one that was known before, or none, or named here.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from environments import Environment, changes_database, make_environment

from fedldp.cli.deploy import text_of as told_of
from fedldp.core.facts import Kind, Status
from fedldp.core.kinds import CANNOT_BE_READ, EXPIRED, EXPIRES, NOT_RUNNING, SILENT, UNREACHABLE
from fedldp.core.locks import alone
from fedldp.deployment.certificates import authority, server_certificate
from fedldp.deployment.checks import Found, check_server, check_site
from fedldp.deployment.metrics import of_agent, of_server, text_of
from fedldp.deployment.server import Server
from fedldp.deployment.site import Agent
from fedldp.deployment.status import status_of_server, status_of_site
from fedldp.deployment.watch import SILENT_SECONDS

pytestmark = pytest.mark.slow


@dataclass
class Outputs:
    """All that an operator can look at."""

    status: dict[str, Any]
    text: list[str]
    metrics: list[str]
    checks: list[Found]

    @property
    def facts(self) -> list[Status]:
        return [Status.from_json(each) for each in self.status["warnings"]]

    @property
    def unread(self) -> set[str]:
        return {fact.values["what"] for fact in CANNOT_BE_READ.among(self.facts)}

    def values(self) -> Iterator[tuple[str, Any]]:
        """Yield each value of the status with its place, but warnings and advice."""

        def under(place: str, found: Any) -> Iterator[tuple[str, Any]]:
            parts = enumerate(found) if isinstance(found, list) else found.items()
            for name, value in parts:
                if isinstance(value, list | dict):
                    yield from under(f"{place}{name}.", value)
                else:
                    yield f"{place}{name}", value

        kept = {name: v for name, v in self.status.items() if name not in ("warnings", "next")}
        yield from under("", kept)

    def changes(self, before: Outputs) -> dict[str, Any]:
        """Return what differs from before, by its place; check that all outputs agree on it."""
        known = dict(before.values())
        found = {place: value for place, value in self.values() if value != known.get(place, ...)}
        known_ok = {each.what for each in before.checks if each.ok}
        ok = {each.what for each in self.checks if each.ok and "unknown" not in each.what}
        assert ok <= known_ok
        told = " ".join(self.text)
        assert ("unknown" in told) >= any(value is None for value in found.values())
        assert "None" not in told
        found |= {
            line.rpartition(" ")[0]: float(line.rpartition(" ")[2])
            for line in self.metrics
            if line not in before.metrics and not line.startswith("#") and "_days" not in line
        }
        return found

    def measures(self, name: str) -> bool:
        return any(line.startswith(f"fedldp_{name}") for line in self.metrics)


@dataclass
class Site:
    """A site whose agent is connected and has answered all rounds."""

    env: Environment
    agent: Agent

    @property
    def state(self) -> Path:
        return self.agent.policy.state

    def look(self) -> Outputs:
        found = status_of_site(self.agent.policy)
        return Outputs(
            found,
            told_of(found).splitlines(),
            text_of(of_agent(self.agent)).splitlines(),
            check_site(self.agent.policy),
        )


@dataclass
class Serving:
    """A server that runs, with one of two rounds complete."""

    env: Environment
    server: Server

    @property
    def folder(self) -> Path:
        return self.server.folder.path

    @property
    def tls(self) -> Path:
        return self.env.folder / "tls"

    def look(self) -> Outputs:
        found = status_of_server(self.folder)
        agreement = self.env.folder / "run.agreement"
        return Outputs(
            found,
            told_of(found).splitlines(),
            text_of(of_server([self.server])).splitlines(),
            check_server(self.folder, agreement, self.tls / "server.pem", self.tls / "server.key"),
        )


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    env = make_environment(tmp_path, seeded=False)
    env.serve()
    with alone(env.policies[0].state / "lock", "agent"):
        agent = env.agent(0)
        agent.watch.heard("one")
        yield Site(env, agent)


class Enough(Exception):
    pass


@pytest.fixture
def serving(tmp_path: Path) -> Iterator[Serving]:
    env = make_environment(tmp_path, seeded=False)
    (tmp_path / "run.agreement").write_bytes(env.agreement.to_bytes())

    def end(record: Any) -> None:
        raise Enough

    with pytest.raises(Enough):
        env.server().serve(env.pipe(), end)
    with alone(tmp_path / "server.lock", "server"):
        server = env.server()
        server.watch.certified_by(tmp_path / "tls" / "server.pem")
        for index in range(3):
            server.watch.heard(index)
            server.watch.is_now(index, "ready")
        server.watch.write()
        yield Serving(env, server)


def long_ago(file: Path) -> None:
    """Make a status old, as it is when its process is frozen."""
    known = json.loads(file.read_text())
    at = datetime.now(UTC) - timedelta(seconds=SILENT_SECONDS + 60)
    known["written"] = at.isoformat(timespec="seconds")
    file.write_text(json.dumps(known))


def test_everything_is_known_as_long_as_every_source_is_there(site: Site) -> None:
    seen = site.look()
    assert None not in [value for place, value in seen.values() if "budget" not in place]
    assert seen.facts == []
    assert seen.status["sites"][0]["state"] == "ready"
    assert seen.status["rounds"] == {"done": 2, "of": 2}
    assert seen.measures("releases 2")
    assert not any("unknown" in line for line in seen.text)


OF_LEDGER = {"rounds.done", "last_release", "runs.0.rounds.done", "runs.0.state"}
OF_LEDGER |= {"sites.0.budget_left"}
OF_DATABASE = {"last_release", "sites.0.budget_left", "sites.0.name", "rounds.done", "rounds.of"}


@pytest.mark.parametrize(
    ("source", "unread", "unknown"),
    [
        ("state/site.db", "ledger", OF_DATABASE),
        ("site.key.ledger-mark", "ledger", OF_LEDGER),
        ("site.key", "key", {"rounds.of", "runs.0.rounds.of", "runs.0.state", "sites.0.name"}),
        ("data.npz", "data", set()),
        ("ca.pem", "certificate", set()),
        ("state/lock", "lock", {"sites.0.state"}),
        ("state/status.json", "status", {"sites.0.state", "sites.0.last_seen"}),
        ("accepted", "agreement", {"rounds.done", "rounds.of", "sites.0.name"}),
    ],
)
def test_what_a_site_cannot_read_is_unknown_everywhere(
    site: Site, source: str, unread: str, unknown: set[str]
) -> None:
    before, folder = site.look(), site.agent.policy.key.parent
    if source == "accepted":
        changes_database(
            site.agent.policy, "UPDATE agreements SET content = substr(content, 1, 99)"
        )
    elif source == "site.key.ledger-mark":
        site.agent.policy.mark.unlink()
    else:
        (folder / source).unlink()
    after = site.look()
    assert after.unread == {unread}
    changes = after.changes(before)
    measured = {"fedldp_refuses"} if source == "state/site.db" else set()
    assert changes.keys() == unknown | measured
    assert all(changes[place] is None for place in unknown)
    if source == "state/site.db":
        assert not after.measures("releases")
        assert not after.measures("budget")
        assert after.measures("refuses 1.0")
    checked = {each.what.split()[0]: each.ok for each in after.checks}
    assert not all(checked.values())
    if source == "state/site.db":  # an agent that starts would only refuse
        (site.state / "lock").rename(site.state / "moved")
        (site.state / "lock").touch()  # nobody holds it
        stopped = site.look().status
        assert stopped["sites"][0]["state"] == "stopped"
        assert "see the warnings" in stopped["next"]


def test_a_connection_that_is_lost_is_named_with_the_last_time(site: Site) -> None:
    before = site.look()
    site.agent.watch.heard("one", "no route")
    after = site.look()
    since = before.status["sites"][0]["last_seen"]
    assert after.facts == [UNREACHABLE(why="no route", since=since)]
    assert after.changes(before) == {"sites.0.state": "away", "fedldp_connected": 0.0}


def test_an_agent_that_is_frozen_is_silent_and_not_ready(site: Site) -> None:
    before = site.look()
    long_ago(site.state / "status.json")
    after = site.look()
    (silent,) = SILENT.among(after.facts)
    assert silent.values["of"] == "agent"
    assert after.changes(before) == {"sites.0.state": "silent"}
    assert any(not each.ok and each.what.startswith("agent ") for each in after.checks)


def test_an_agent_that_was_killed_is_not_running(site: Site) -> None:
    lock = site.state / "lock"
    lock.rename(lock.with_name("moved"))
    lock.touch()  # nobody holds it
    after = site.look()
    assert after.facts == [NOT_RUNNING(of="agent")]
    assert after.status["sites"][0]["state"] == "stopped"


def test_an_authority_that_expired_is_named(site: Site) -> None:
    ca = site.agent.policy.server[0].ca
    ca.write_bytes(authority("test", -0.5).certificate)  # type: ignore[arg-type]
    after = site.look()
    (expired,) = EXPIRED.among(after.facts)
    assert expired.values["what"] == str(ca)


# The server

OF_STATUS = {f"sites.{i}.{name}" for i in range(3) for name in ("state", "last_seen")}


@pytest.mark.parametrize(
    ("source", "unread", "unknown"),
    [
        ("server/status.json", "status", {*OF_STATUS, "state", "rounds.done"}),
        ("server.lock", "lock", {"state"}),
        ("tls/server.pem", "certificate", set()),
    ],
)
@pytest.mark.parametrize("damaged", [None, b"{]", b'{"sites": [3, {"name": "site-0"}]}'])
def test_what_a_server_cannot_read_is_unknown_everywhere(
    serving: Serving, source: str, unread: str, unknown: set[str], damaged: bytes | None
) -> None:
    if source == "server.lock" and damaged:
        pytest.skip("the content of a lock says nothing")
    before = serving.look()
    if damaged is None:
        (serving.env.folder / source).unlink()
    else:
        (serving.env.folder / source).write_bytes(damaged)
    after = serving.look()
    assert after.unread == {unread}
    assert after.changes(before) == dict.fromkeys(unknown)
    assert after.measures("certificate_days{") == (unread != "certificate")


def test_a_new_server_knows_no_states_of_an_earlier_one(serving: Serving) -> None:
    server = serving.env.server()
    text = text_of(of_server([server]))
    assert "fedldp_site_takes_part{" not in text
    assert {site["state"] for site in status_of_server(serving.folder)["sites"]} == {None}


def test_a_server_that_is_frozen_is_silent(serving: Serving) -> None:
    before = serving.look()
    long_ago(serving.folder / "status.json")
    after = serving.look()
    assert [fact.values["of"] for fact in SILENT.among(after.facts)] == ["server"]
    assert after.changes(before) == {"state": "silent"}


@pytest.mark.parametrize(("days", "kind"), [(-0.5, EXPIRED), (29, EXPIRES)])
def test_a_servers_certificate_that_expires_is_named(
    serving: Serving, days: float, kind: Kind[Status]
) -> None:
    before = serving.look()
    signer = authority("test", 60)
    made = server_certificate(signer, ["127.0.0.1"], days)  # type: ignore[arg-type]
    (serving.tls / "server.pem").write_bytes(made.certificate)
    after = serving.look()
    (found,) = kind.among(after.facts)
    assert found.values["what"] == str(serving.tls / "server.pem")
    if days < 0:
        assert after.changes(before) == {}
