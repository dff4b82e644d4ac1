"""Several runs on one server: a queue, a limit, and one port."""

from __future__ import annotations

import json
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from environments import (
    HOST,
    Environment,
    acceptance_of,
    bits,
    bits_of,
    changes_database,
    make_environment,
    new_tls,
    write_tls,
)
from real_processes import Party, eventually
from stages import agents_of, started

from fedldp.core.errors import ConfigError
from fedldp.core.kinds import ENDED_EARLY
from fedldp.deployment import running
from fedldp.deployment.acceptance import accept
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.demo import free_ports
from fedldp.deployment.policy import ServerTable
from fedldp.deployment.runs import Queue
from fedldp.deployment.status import status_of_server
from fedldp.simulation.engine import simulate
from fedldp.simulation.result import read_run


def queued(home: Path, agreement: Agreement, name: str = "run.agreement") -> str:
    (home.parent / name).write_bytes(agreement.to_bytes())
    return Queue(home).add(home.parent / name)


@pytest.fixture
def env(tmp_path: Path) -> Environment:
    env = make_environment(tmp_path)
    write_tls(tmp_path / "home")
    return env


def states(home: Path) -> list[str]:
    return [each.state for each in Queue(home).all()]


def test_a_run_is_queued_once_and_only_for_the_servers_authority(
    env: Environment, fedldp_command: Any
) -> None:
    home = env.folder / "home"
    run = queued(home, env.agreement)
    assert run == env.agreement.run
    with pytest.raises(ConfigError, match=f"its run {run} is queued already"):
        queued(home, env.agreement)
    with pytest.raises(ConfigError, match="in the queue with another agreement"):
        queued(home, env.agreement.changed(deadline_seconds=6.0))
    line = fedldp_command("deploy", "queue", home, env.folder / "run.agreement").assert_refused()
    assert "with another agreement" in line
    write_tls(home, new_tls())
    with pytest.raises(ConfigError, match="names another authority"):
        queued(home, env.agreement.changed(run="f" * 32))
    with pytest.raises(ConfigError, match="run 00ff: 0 runs"):
        Queue(home).stop("00ff")
    assert states(home) == ["queued"]
    assert fedldp_command("deploy", "stop", home, run[:6]).status == 0
    assert states(home) == ["stopped"]
    assert not any(each.is_due for each in Queue(home).all())
    assert run in fedldp_command("deploy", "list", home).out
    (env.folder / "run.agreement").write_bytes(env.agreement.to_bytes())
    assert fedldp_command("deploy", "queue", home, env.folder / "run.agreement").status == 0
    assert states(home) == ["queued"]
    Queue(home).end(run, "complete")
    with pytest.raises(ConfigError, match=f"its run {run} has ended; another run needs another"):
        queued(home, env.agreement)


@pytest.mark.parametrize("content", ["", "{", "{}", '{"test": null, "state": "over", "why": null}'])
def test_a_run_whose_note_is_damaged_is_not_over_and_can_be_queued_again(
    env: Environment, content: str
) -> None:
    """A site that is told that a run is over gives up its budget for it, which cannot be undone."""
    home = env.folder / "home"
    run = queued(home, env.agreement)
    (home / "queue" / f"{run}.json").write_text(content)
    (known,) = Queue(home).all()
    assert (known.state, known.over, known.is_due) == ("stopped", None, False)
    assert known.why is not None
    assert Queue(home).add(env.folder / "run.agreement", test="digits") == run
    (known,) = Queue(home).all()
    assert (known.state, known.test, known.why) == ("queued", "digits", None)


@pytest.mark.parametrize("runs", [3, 8, 9, 100])
def test_runs_that_wait_take_turns_and_all_sites_ask_for_the_same(
    runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sites accept in any order: if each asked for the first eight, no run might have a quorum."""
    table = ServerTable(url=f"https://{HOST}:1", ca=Path("ca.pem"))
    digests, clock = [number.to_bytes(32, "big") for number in range(runs)], [0.0]
    monkeypatch.setattr(time, "time", lambda: clock[0])
    begun = {(digests[0], table)}
    orders = [dict.fromkeys(some, table) for some in (digests, digests[::-1])]
    asked = Counter[bytes]()
    for turn in range(runs):
        clock[0] = turn * running._TURN_SECONDS
        one, other = (running._in_turn(order, begun) for order in orders)
        assert one == other
        assert (digests[0], table) in one
        assert len(set(one)) == len(one) == min(runs, 1 + running._WAITING)
        asked.update(digest for digest, _ in one)
    assert asked.keys() == set(digests)
    del asked[digests[0]]
    assert max(asked.values()) - min(asked.values()) <= 1


@contextmanager
def queue_served(
    home: Path, most: int, is_asked_for: Callable[[bytes, int], bool] | None = None
) -> Iterator[dict[str, Any]]:
    """Serve a queue while the context lasts; yield the servers that run, by run."""
    reached = running.OverHttps(f"{HOST}:0", home / "server.pem", home / "server.key")
    listener, servers, stop = reached.listener(home), dict[str, Any](), threading.Event()
    if is_asked_for is not None:
        listener.is_asked_for = is_asked_for  # type: ignore[method-assign]
    given = (Queue(home), listener, servers, most, None, stop)
    thread = threading.Thread(target=running._serve_queue, args=given)
    thread.start()
    try:
        yield servers
    finally:
        stop.set()
        thread.join()


@pytest.mark.slow
def test_a_queue_with_a_thousand_runs_begins_as_many_as_it_may(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_LOOK_SECONDS", 0.05)
    home, own = env.folder / "home", env.agreement
    first = queued(home, own)
    content = own.to_bytes()
    for number in range(999):
        name = f"{number:032x}"
        (home / "queue" / f"{name}.agreement").write_bytes(
            content.replace(own.run.encode(), name.encode())
        )
        noted = '{"test": null, "state": "queued", "why": null}'
        (home / "queue" / f"{name}.json").write_text(noted)
    queue = Queue(home)
    start = time.monotonic()
    assert [each.is_due for each in queue.all()] == [True] * 1000
    assert time.monotonic() - start < 5
    with queue_served(home, 3) as servers:
        eventually(lambda: len(servers) == 3)
        time.sleep(0.5)
        assert len(servers) == 3
        assert first in servers
        assert states(home).count("running") == 3
        queue.stop(first)
        eventually(lambda: first not in servers and len(servers) == 3)
        assert queue.run(first).state == "stopped"
    assert states(home).count("running") == 0


@pytest.mark.slow
def test_a_run_whose_sites_never_come_makes_room_for_one_whose_sites_are_there(
    env: Environment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(running, "_LOOK_SECONDS", 0.02)
    monkeypatch.setattr(running, "_ASIDE_SECONDS", 0.2)
    home, here = env.folder / "home", set[bytes]()
    agreements = [env.agreement.changed(run=letter * 32) for letter in "abc"]
    runs = [queued(home, each, f"{each.run}.agreement") for each in agreements]
    with queue_served(home, 1, lambda digest, quorum: digest in here) as servers:
        for place in (0, 2, 1):
            here |= {agreements[place].digest} if place else set()
            eventually(lambda place=place: [*servers] == [runs[place]])  # type: ignore[misc]
            here.clear()
            time.sleep(0.5)  # none makes room for runs whose sites are not there either
            assert [*servers] == [runs[place]]
        eventually(lambda: states(home) == ["queued", "running", "queued"])


@pytest.mark.slow
def test_a_server_serves_two_runs_on_one_port_and_a_slow_one_holds_up_no_other(
    tmp_path: Path,
) -> None:
    """One run waits for a site that has not accepted it, and makes room for the other."""
    port, shown = free_ports(2)
    table = {"url": f"https://{HOST}:{port}", "ca": "../tls/ca.pem"}
    env = make_environment(tmp_path, policy={"server": [table]}, deadline=300.0)
    home = tmp_path / "home"
    write_tls(home)
    config = env.config.changed(epsilon=2.0, channel="sum")
    other = env.another_study(config, env.agreement.server_ca)
    for policy in env.policies[:2]:
        accept(policy, other)
    runs = [queued(home, other, "other.agreement"), queued(home, env.agreement)]
    arguments = ["deploy", "server", home, "--listen", f"{HOST}:{port}", "--metrics", shown]
    arguments += ["--runs", "1"]
    server, agents = Party(tmp_path / "server.log", *arguments), agents_of(env)
    with started(server, *agents):
        eventually(lambda: states(home)[1] == "ended", "the run whose sites are there")
        eventually(lambda: states(home)[0] == "running", "the other run")
        eventually(lambda: Queue(home).run(runs[0]).rounds() == (0, 2), "its status")

        def at(place: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{shown}/{place}", timeout=60) as found:
                return str(found.read().decode())

        eventually(lambda: f"Run {runs[0][:8]}" in at(""), "its page")
        assert "fedldp_certificate_days{run" in at("metrics")
        server.kill()  # both continue after a restart, and what has ended asks nothing more
        server.start()
        accept(env.policies[2], other)
        eventually(lambda: states(home) == ["ended", "ended"], "both runs")
        assert [each.why for each in Queue(home).all()] == ["complete"] * 2
        for run, of in zip(runs, (config, env.config), strict=True):
            assert bits_of(home / run / "model.safetensors") == bits(simulate(of))
        eventually(lambda: all(a.text().count("is over after 2 rounds") == 2 for a in agents))
    for index in range(3):
        places = [(e.run, e.round, e.phase) for e in env.ledger(index).verify()]
        assert len(places) == len(set(places)) == 2 + 2 * 4


@pytest.mark.slow
def test_a_run_that_the_budgets_stop_is_ended_by_its_operator_also_for_a_site_that_was_away(
    tmp_path: Path, fedldp_command: Any
) -> None:
    (port,) = free_ports(1)
    table = {"url": f"https://{HOST}:{port}", "ca": "../tls/ca.pem"}
    env = make_environment(tmp_path, "rounds=5", policy={"server": [table]}, deadline=300.0)
    home = tmp_path / "home"
    write_tls(home)
    run = queued(home, env.agreement)
    (event,) = env.agreement.events_of(0)
    for index in range(3):  # as after a restore: there is enough left for three rounds
        ledger = env.ledger(index)
        cost = ledger.budget.price(event)
        changes_database(
            env.policies[index], "UPDATE agreements SET promised = ?", json.dumps([3.5 * cost])
        )
    server = Party(tmp_path / "server.log", "deploy", "server", home, "--listen", f"{HOST}:{port}")
    agents = agents_of(env)
    with started(server, *agents):
        eventually(lambda: Queue(home).run(run).why is not None)
        found = Queue(home).run(run)
        assert (found.state, found.rounds()) == ("stopped", (3, 5))
        assert "budgets of some sites are used up" in str(found.why)
        told = status_of_server(home / run)["next"]
        assert f"fedldp deploy queue {home} {found.agreement} continues the run" in told
        assert f"fedldp deploy finish {home / run} ends it" in told
        accepted = [acceptance_of(policy, env.agreement.digest) for policy in env.policies]
        assert all(each.is_open for each in accepted)  # the cause may be mended
        agents[2].kill()
        said = fedldp_command("deploy", "finish", home / run).out
        assert said == f"the run in {home / run} ends while its server runs; its sites are told\n"
        eventually(lambda: states(home) == ["ended"])
        assert Queue(home).run(run).why == "finished by its operator"
        server.kill()
        server.start()
        agents[2].start()
        eventually(lambda: all("is over after 3 rounds" in agent.text() for agent in agents))
        assert acceptance_of(env.policies[2], env.agreement.digest).state == "finished"
        assert "does not know this site's key" not in "".join(each.text() for each in agents)
    assert read_run(home / run).privacy.warnings[-1] == ENDED_EARLY(done=3, of=5)
    assert [env.releases(index) for index in range(3)] == [[(1, 0), (2, 0), (3, 0)]] * 3
