"""The state of a run: what server and site report, log and measure, during and after it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from environments import (
    Environment,
    acceptance_of,
    ask,
    content,
    limited,
    make_environment,
    new_tls,
    request_of,
    write_policy,
    write_tls,
)
from https_ends import Ends, eventually

from fedldp.core.errors import ConfigError
from fedldp.core.facts import Status
from fedldp.core.kinds import CANNOT_BE_READ, CANNOT_PAY, NOT_RUNNING
from fedldp.core.locks import alone
from fedldp.deployment.acceptance import Acceptances, accept
from fedldp.deployment.checks import check_site
from fedldp.deployment.https.site import check_reachable
from fedldp.deployment.restored import charge_lost
from fedldp.deployment.status import status_of_server, status_of_site
from fedldp.deployment.watch import SiteWatch
from fedldp.protocol.wire import Report

CONTRACT = {"rounds", "sites", "next", "warnings"}
SITE = {"name", "last_seen", "state", "budget_left"}


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Environment:
    env = make_environment(tmp_path_factory.mktemp("served"), seeded=False)
    env.serve()
    return env


def told(found: dict[str, Any]) -> list[Status]:
    return [Status.from_json(each) for each in found["warnings"]]


def assert_contract(found: dict[str, Any]) -> None:
    assert found.keys() >= CONTRACT
    assert found["rounds"].keys() == {"done", "of"}
    assert all(site.keys() >= SITE for site in found["sites"])
    json.dumps(found, allow_nan=False)


# The server


def test_a_server_reports_every_round_during_the_run_and_after_it(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    folder, seen = tmp_path / "server", list[dict[str, Any]]()
    server = env.server()
    seen.append(status_of_server(folder))
    with alone(folder.with_name("server.lock"), "server"):
        server.serve(env.pipe(), lambda record: seen.append(status_of_server(folder)))
    seen.append(status_of_server(folder))
    for found in seen:
        assert_contract(found)
        assert [site["name"] for site in found["sites"]] == ["site-0", "site-1", "site-2"]
        # The remaining budget is each site's own.
        assert {site["budget_left"] for site in found["sites"]} == {None}
    assert [each["rounds"] for each in seen] == [{"done": n, "of": 2} for n in (0, 1, 2, 2)]
    assert [each["state"] for each in seen] == [None, "runs", "runs", "complete"]
    assert CANNOT_BE_READ.among(told(seen[0]))[0].values["what"] == "lock"
    last = seen[-1]
    assert last["warnings"] == []
    assert {site["state"] for site in last["sites"]} == {"answered"}
    assert all(site["last_seen"] for site in last["sites"])


# A site


def test_a_site_reports_its_own_ledger(served: Environment) -> None:
    policy, ledger = served.policies[0], served.ledger(0)
    found = status_of_site(policy)
    assert_contract(found)
    assert found["rounds"] == {"done": 2, "of": 2}
    (site,) = found["sites"]
    assert (site["name"], site["state"]) == ("site-0", None)  # no agent said that it ended
    (budget,) = site["budget_left"]
    assert budget["spent"] == ledger.spent() > 0
    assert budget["left"] == ledger.accounts(ledger.releases())[0].left
    assert ledger.releases()[-1].hash in found["last_release"]
    (run,) = found["runs"]
    assert (run["run"], run["state"]) == (served.agreement.run, "answered")
    watch = SiteWatch(policy.state)
    watch.ends()
    assert told(status_of_site(policy)) == [NOT_RUNNING(of="agent")]
    assert status_of_site(policy)["sites"][0]["state"] == "stopped"
    with alone(policy.state / "lock", "agent"):
        watch.heard("one")
        assert status_of_site(policy)["sites"][0]["state"] == "ready"


@pytest.mark.slow
def test_a_site_whose_budget_does_not_cover_the_next_round_says_so(tmp_path: Path) -> None:
    env = limited(tmp_path, 1.5, enough=1)
    ask(env.agent(0), env, request_of(env))
    (short,) = CANNOT_PAY.among(told(status_of_site(env.policies[0])))
    assert short.values["run"] == env.agreement.run
    assert short.values["cost"] == pytest.approx(env.policies[0].budgets[0].limit / 1.5)
    assert short.values["left"] == 0.0  # the rest of the budget is for other runs


def test_a_site_that_has_done_nothing_yet_has_all_of_its_budget(tmp_path: Path) -> None:
    env = make_environment(tmp_path, policy={"budget": {"kind": "pure", "limit": float("inf")}})
    shutil.rmtree(env.policies[0].state)
    env.policies[0].mark.unlink()
    found = status_of_site(env.policies[0])
    assert_contract(found)
    (budget,) = found["sites"][0]["budget_left"]
    assert (budget["limit"], budget["spent"], budget["left"]) == (None, 0.0, None)
    assert not env.policies[0].ledger.exists()  # a check creates nothing


def test_a_site_with_an_outdated_ledger_says_so_and_reports_no_budget(tmp_path: Path) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy = env.policies[0]
    env.agent(0)
    before = policy.ledger.read_bytes()
    ask(env.agent(0), env, request_of(env))
    policy.ledger.write_bytes(before)
    agent = env.agent(0)
    found = status_of_site(policy)
    assert found["sites"][0]["budget_left"] is None
    (unread,) = (f for f in CANNOT_BE_READ.among(told(found)) if f.values["what"] == "ledger")
    assert "this is an older copy" in unread.values["why"]
    assert "this is an older copy" in agent.watch.document()["refuses"]
    with alone(policy.state / "lock", "agent"):
        agent.watch.write()
        assert status_of_site(policy)["sites"][0]["state"] == "refused"
        amiss = [each.what for each in check_site(policy) if not each.ok]
    assert any("it is running, but refuses" in line for line in amiss)


# The commands


def test_the_commands_print_what_the_functions_return(
    served: Environment, fedldp_command: Any
) -> None:
    folder, policy = served.folder / "server", served.folder / "site-1" / "site.toml"
    for place, found in (
        (folder, status_of_server(folder)),
        (policy, status_of_site(served.policies[1])),
    ):
        assert json.loads(fedldp_command("deploy", "status", place, "--json").out) == found
        text = fedldp_command("deploy", "status", place).out
        assert found["next"] in text
        assert all(line.isprintable() for line in text.splitlines())
    line = fedldp_command("deploy", "status", served.folder / "nothing").assert_refused()
    assert "not a server's folder" in line


def test_an_agreement_is_retired_by_the_first_digits_of_its_digest(
    tmp_path: Path, fedldp_command: Any
) -> None:
    env = make_environment(tmp_path)
    digest, policy = env.agreement.digest.hex(), tmp_path / "site-0" / "site.toml"
    for wrong in ("", digest[:7], "f" * 64):
        line = fedldp_command("deploy", "retire", wrong, "--policy", policy).assert_refused()
        assert digest[:16] in line
    assert acceptance_of(env.policies[0], env.agreement.digest).is_open
    given = ("retire", digest[:8].upper(), "--policy", policy)
    assert fedldp_command("deploy", *given).status == 0
    assert not acceptance_of(env.policies[0], env.agreement.digest).is_open


# Retired agreements


def is_served(agent: Any, env: Environment) -> bool:
    return env.agreement.digest in agent.served()


@pytest.mark.slow
def test_a_retired_agreement_is_no_longer_loaded_but_charged_after_a_restore(
    tmp_path: Path,
) -> None:
    env = make_environment(tmp_path, seeded=False)
    policy, agent = env.policies[0], env.agent(0)
    assert is_served(agent, env)
    Acceptances(policy).retire(env.agreement.digest)
    assert not is_served(agent, env)
    assert not is_served(env.agent(0), env)
    assert status_of_site(policy)["runs"][0]["state"] == "retired"
    assert not any(each.what.startswith("accepted") for each in check_site(policy))
    accept(policy, env.agreement)
    assert is_served(agent, env)
    assert isinstance(content(ask(agent, env, request_of(env))), Report)
    Acceptances(policy).retire(env.agreement.digest)
    (lost,) = charge_lost(policy, [])
    assert (lost.run, lost.rounds) == (env.agreement.run, 1)


# Locks, and checks while an agent runs


@pytest.mark.slow
def test_a_check_reaches_the_server_like_the_agent_and_while_it_runs(tmp_path: Path) -> None:
    write_tls(tmp_path / "other", new_tls())
    env = make_environment(tmp_path, seeded=False)
    policy = env.policies[0]
    ends = Ends(tmp_path / "tls", [env.agent(i).key for i in range(2)])

    def server_line(ca: str) -> tuple[bool, str]:
        table = {"url": ends.url, "ca": f"../{ca}/ca.pem"}
        own = write_policy(policy.key.parent, server=[table])
        ((ok, what),) = [(f.ok, f.what) for f in check_site(own) if f.what.startswith("server ")]
        return ok, what

    with ends.pipe() as pipe, ends.link(0), alone(policy.state / "lock", "agent"):
        eventually(lambda: pipe.sites[0].there)
        token = pipe.sites[0].token
        ok, what = server_line("tls")
        assert ok, what
        assert pipe.sites[0].token == token  # the agent's session continues
        ok, what = server_line("other")
        assert not ok
        assert "CERTIFICATE_VERIFY_FAILED" in what
    assert not server_line("tls")[0]
    with pytest.raises(ConfigError):
        check_reachable(ends.url, tmp_path / "tls" / "ca.pem")
