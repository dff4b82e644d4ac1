"""What the metrics port shows: numbers for Prometheus, and the operator's page."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from environments import Environment, ask, make_environment, request_of
from https_ends import eventually
from prometheus_client.core import GaugeMetricFamily

from fedldp.core.errors import ConfigError, LedgerUnusable
from fedldp.deployment.https import server as https
from fedldp.deployment.metrics import (
    of_agent,
    of_server,
    page_of_servers,
    page_of_site,
    serving,
    text_of,
)
from fedldp.deployment.server import Server
from fedldp.reporting import words

SAMPLE = re.compile(r'fedldp_[a-z_]+(\{[a-z_]+="[^"]*"(,[a-z_]+="[^"]*")*\})? \S+')
MARKUP = "<script>alert('&')</script>"


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> tuple[Environment, Server]:
    """A run and its server, which has just ended."""
    env = make_environment(tmp_path_factory.mktemp("served"), seeded=False)
    server = env.server()
    server.watch.certified_by(env.folder / "tls" / "server.pem")
    server.serve(env.pipe(), lambda record: None)
    return env, server


def samples(text: str) -> dict[str, float]:
    lines = [line for line in text.splitlines() if not line.startswith("#")]
    assert all(SAMPLE.fullmatch(line) for line in lines)
    return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines)}


def labels(name: str) -> dict[str, str]:
    return dict(re.findall(r'(\w+)="([^"]*)"', name))


# Numbers


def test_a_servers_metrics_are_complete(served: tuple[Environment, Server]) -> None:
    env, server = served
    run = env.agreement.run[:8]
    server.watch.is_now(1, "refused", "over-budget")
    found = samples(text_of(of_server([server])))
    assert found[f'fedldp_rounds{{run="{run}"}}'] == 2.0
    assert found[f'fedldp_round_at_work_seconds{{run="{run}"}}'] == 0.0
    assert 59 < found[f'fedldp_certificate_days{{run="{run}"}}'] <= 60
    refused = f'fedldp_site_refusals_total{{reason="over-budget",run="{run}",site="site-1"}}'
    assert found[refused] == 1.0
    figures = {labels(name)["metric"]: name for name in found if name.startswith("fedldp_figure{")}
    assert found[figures["accuracy"]] == server.rounds[-1].accuracy
    doubts = {each.metric: " ".join(doubt.kind for doubt in each.doubts) for each in server.figures}
    assert {metric: labels(name)["doubts"] for metric, name in figures.items()} == doubts
    assert any(doubts.values())


def test_an_epsilon_has_its_conditions_as_labels(served: tuple[Environment, Server]) -> None:
    _, server = served
    found = samples(text_of(of_server([server])))
    lines = {name: value for name, value in found.items() if name.startswith("fedldp_epsilon{")}
    spent = {(each["unit"], each["adversary"]): each for each in server.rounds[-1].spent}
    assert {(labels(name)["unit"], labels(name)["adversary"]) for name in lines} == spent.keys()
    for name, value in lines.items():
        about = labels(name)
        assert value == spent[about["unit"], about["adversary"]]["epsilon"]
        assert {"randomised-at-client", "answer-time"} <= set(about["conditions"].split())
        assert (about["stated_by"], float(about["delta"])) == ("fedldp", 1e-5)


def test_a_sites_metrics_are_complete(served: tuple[Environment, Server]) -> None:
    env, _ = served
    agent, run = env.agent(0), env.agreement.run[:8]
    for _ in range(2):
        ask(agent, env, request_of(env, round=3))
    metrics = of_agent(agent)
    found = samples(text_of(metrics))
    assert found[f'fedldp_refusals_total{{reason="wrong-round",run="{run}"}}'] == 2.0
    assert found['fedldp_budget_spent{kind="zcdp",unit="client"}'] == env.ledger(0).spent()
    assert found["fedldp_releases"] == 2.0
    (days,) = [found[name] for name in found if name.startswith("fedldp_authority_days")]
    assert 59 < days <= 60
    # The duration of training would reveal the number of examples.
    assert not any("second" in each.name and "seen" not in each.name for each in metrics)


# Pages


def told(page: str) -> str:
    """Return a page without the time at which it was made."""
    return re.sub(r"As of [^.]+\.", "", page)


def test_a_servers_page_shows_rounds_figures_sites_and_what_was_released(
    served: tuple[Environment, Server],
) -> None:
    env, server = served
    server.watch.is_now(2, "refused", MARKUP)
    page = page_of_servers([server])
    doubts = [words.line(doubt) for each in server.figures for doubt in each.doubts]
    assert doubts
    for text in (env.agreement.run[:8], "2 of 2 rounds are complete", "site-1", "balanced accuracy",
                 "method and assumptions", *doubts):  # fmt: skip
        assert text in page, text
    assert MARKUP not in page
    assert "&lt;script&gt;" in page
    assert "<script" not in page


def test_a_sites_page_shows_its_budget_and_what_was_released_to_whom(
    served: tuple[Environment, Server],
) -> None:
    env, _ = served
    agent = env.agent(0)
    agent.watch.heard("one", MARKUP)
    page = page_of_site(agent)
    for text in ("zcdp budget", "site-0", "2 of 2", "all are answered", "https://127.0.0.1:9"):
        assert text in page, text
    assert "&lt;script&gt;" in page
    assert "<script" not in page
    # The time of a release would reveal when its training ended.
    assert not re.search(r"\d\d:\d\d", page.partition("<h2>Budget")[2])


@pytest.mark.slow
def test_metrics_and_page_show_a_release_once_it_has_left(tmp_path: Path) -> None:
    """Reading the ledger while an answer waits to leave would reveal when training ended."""
    env = make_environment(tmp_path, seeded=False, policy={"answer_after_seconds": 3.0})
    agent = env.agent(0)
    page, numbers = told(page_of_site(agent)), text_of(of_agent(agent))
    asking = threading.Thread(target=ask, args=(agent, env, request_of(env)))
    asking.start()
    eventually(lambda: env.releases(0))
    agent.watch.heard("one", "has not reached its server yet")
    assert "fedldp_releases 0.0" in text_of(of_agent(agent)).splitlines()
    assert told(page_of_site(agent)).partition("<h2>Budget")[2] == page.partition("<h2>Budget")[2]
    assert asking.is_alive()
    asking.join()
    assert agent.shown is not None
    assert len(agent.shown) == 1
    assert "fedldp_releases 1.0" in text_of(of_agent(agent)).splitlines() != numbers.splitlines()
    assert told(page_of_site(agent)) != page


@pytest.mark.slow
def test_metrics_show_a_refusal_once_it_has_left(tmp_path: Path) -> None:
    """The ledger may fail when training has ended, and that moment must not be shown."""
    env = make_environment(tmp_path, seeded=False, policy={"answer_after_seconds": 2.0})
    agent = env.agent(0)
    failed = threading.Event()

    def keep() -> Any:
        failed.set()
        raise LedgerUnusable("the disk is full")

    agent._kept.keep = keep  # type: ignore[method-assign]
    asking = threading.Thread(target=ask, args=(agent, env, request_of(env)))
    asking.start()
    assert failed.wait(60)
    time.sleep(0.2)
    assert asking.is_alive()
    assert agent.watch.document()["refuses"] is None
    asking.join()
    assert agent.watch.document()["refuses"] == "the disk is full"


def test_entries_that_were_read_earlier_take_no_release_from_what_is_shown(tmp_path: Path) -> None:
    """Two runs read the ledger in turn, and their answers leave in the other order."""
    env = make_environment(tmp_path, seeded=False)
    agent = env.agent(0)
    (run,) = agent.runs
    ask(agent, env, request_of(env))
    (entry,) = agent.shown or ()
    agent._show(replace(run, agreement=run.agreement.changed(run="0" * 32)), [])
    assert agent.shown == [entry]


# The port


def fetched(url: str, **headers: str) -> tuple[int, str, str]:
    try:
        asked = urllib.request.Request(url, headers=headers)
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return answer.status, answer.headers["content-type"], answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.headers["content-type"], error.read().decode()


@pytest.mark.slow
def test_the_port_is_open_to_this_machine_only_by_default(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rounds = [1.0]

    def found() -> Iterator[GaugeMetricFamily]:
        yield GaugeMetricFamily("fedldp_rounds", "Rounds.", rounds[0])

    def page() -> str:
        return f"<p>{rounds[0]}</p>"

    with serving("0", found, page) as port:
        url = f"http://127.0.0.1:{port}"
        for rounds[0] in (1.0, 2.0):
            status, kind, text = fetched(f"{url}/metrics")
            assert (status, kind.partition(";")[0]) == (200, "text/plain")
            assert text.endswith(f"fedldp_rounds {rounds[0]}\n")
            assert fetched(f"{url}/") == (200, "text/html; charset=utf-8", page())
        assert fetched(f"{url}/x")[0] == 404
        # A web site whose name stands for 127.0.0.1 reads nothing.
        assert fetched(f"{url}/", Host=f"rebound.example:{port}")[0] == 403
        assert fetched(f"{url}/metrics", Host="rebound.example")[0] == 403
        assert fetched(f"{url}/", Host=f"localhost:{port}")[0] == 200
        taken = serving(str(port), found, page)
        with pytest.raises(ConfigError, match=f"metrics = 127.0.0.1:{port}: "), taken:
            pass
    assert "everyone who can reach" not in caplog.text
    with serving("0.0.0.0:0", found, page) as port:
        assert "everyone who can reach 0.0.0.0:0 can read the metrics" in caplog.text
        assert fetched(f"http://127.0.0.1:{port}/", Host="monitor.example")[0] == 200
    with serving(None, found, page) as port:
        assert port is None
    for wrong in ("x", "1:2:x", "70000", "127.0.0.1:"):
        with pytest.raises(ConfigError, match="write it as PORT"), serving(wrong, found, page):
            pass


def test_silent_clients_cannot_use_up_the_files_of_the_process(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Else whoever reaches the port could keep a site from opening its ledger."""
    monkeypatch.setattr(https, "MOST_STRANGERS", 4)
    with serving("0", list, lambda: "here") as port:
        silent = [socket.create_connection(("127.0.0.1", port or 0), 10) for _ in range(12)]
        for each in silent:
            each.setblocking(False)

        def hung_up(client: socket.socket) -> bool:
            try:
                return not client.recv(1)
            except BlockingIOError:
                return False
            except OSError:
                return True

        eventually(lambda: sum(map(hung_up, silent)) >= len(silent) - 5)
        assert fetched(f"http://127.0.0.1:{port}/")[2] == "here"
        for each in silent:
            each.close()


# What others build on the names


CONTAINERS = Path(__file__).parents[2] / "docs" / "containers"


def exposed(served: tuple[Environment, Server]) -> dict[str, set[str]]:
    """Return the names that a run's server and sites expose, each with its labels."""
    env, server = served
    text = text_of(of_server([server])) + text_of(of_agent(env.agent(0)))
    found = {name: set[str]() for name in re.findall(r"^# TYPE (\S+)", text, re.M)}
    for name in samples(text):
        found[name.partition("{")[0]] |= labels(name).keys()
    return found


def names_in(text: str) -> set[str]:
    return set(re.findall(r"\bfedldp_\w+", text))


def test_the_dashboard_shows_only_what_a_run_exposes(served: tuple[Environment, Server]) -> None:
    known = exposed(served)
    board = json.loads((CONTAINERS / "dashboard.json").read_text())
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])
    shown = set[str]()
    for panel in board["panels"]:
        for target in panel.get("targets", ()):
            (name,) = names_in(target["expr"])
            shown.add(name)
            if not name.startswith(
                ("fedldp_figure_", "fedldp_site_refusals", "fedldp_refusals")
            ):  # none in this run
                told = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
                told |= {"run"} if "$run" in target["expr"] else set()
                assert told <= known[name], target
    assert shown == known.keys()
    assert names_in(json.dumps(board["templating"])) <= known.keys()


def test_the_alerts_watch_only_what_a_run_exposes(served: tuple[Environment, Server]) -> None:
    yaml = pytest.importorskip("yaml")
    (group,) = yaml.safe_load((CONTAINERS / "alerts.yaml").read_text())["groups"]
    assert [rule["alert"] for rule in group["rules"]] == [
        "FedldpSilent", "FedldpRefuses", "FedldpCertificateEnds"
    ]  # fmt: skip
    for rule in group["rules"]:
        assert names_in(rule["expr"]) <= exposed(served).keys()
        assert rule["expr"].count("(") == rule["expr"].count(")")
        assert rule["annotations"].keys() == {"summary", "description"}
