"""Two studies of two servers at the same sites, on one budget."""

from __future__ import annotations

import json
import math
import random
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from environments import (
    HOST,
    ask_bytes,
    at_once,
    bits,
    bits_of,
    content,
    make_environment,
    new_tls,
    request_of,
    write_tls,
)
from real_processes import eventually
from stages import agents_of, server_of, started

from fedldp.core.errors import ConfigError
from fedldp.deployment.acceptance import Acceptances, accept
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.certificates import fingerprints
from fedldp.deployment.demo import free_ports
from fedldp.deployment.messages import Answered, read_message
from fedldp.deployment.policy import costs_of
from fedldp.deployment.sites import RELEASED_TWICE
from fedldp.ledgers.budget import Budget
from fedldp.protocol.wire import Reason, Refusal, Report
from fedldp.simulation.engine import simulate

pytestmark = pytest.mark.slow

SITES = 3
WAYS = 24


# The last of a budget


def test_what_is_left_pays_one_of_two_servers_24_requests_at_once(tmp_path: Path) -> None:
    """The budget was promised to all; then a restore charged what may have been released."""
    left, urls = 7, [f"https://{HOST}:{port}" for port in (9, 10)]
    table = [{"url": url, "ca": "ca.pem"} for url in urls]
    env = make_environment(tmp_path, "rounds=1", sites=2, policy={"server": table[:1]})
    policy = env.policies[0]
    (event,) = env.agreement.events_of(0)
    cost = Budget("zcdp", math.inf).price(event)
    for path in (policy.ledger, policy.mark):
        path.unlink()
    limit = float(cost * (WAYS + 1))
    env.policies[0] = policy = policy.changed(
        budget={"kind": "zcdp", "limit": limit},
        server=[policy.server[0], {**policy.server[0].model_dump(), "url": urls[1]}],
    )
    runs = [env.agreement.changed(run=f"{number:032x}") for number in range(WAYS)]
    for number, each in enumerate(runs):
        accept(policy, each, url=urls[number % 2])
    agent = env.agent(0)
    for number in range(WAYS + 1 - left):
        agent.ledger.charge_lost("lost", number + 1, 0, event)
    begin, found = threading.Barrier(WAYS), list[Any]()

    def ask(agreement: Agreement) -> None:
        of = replace(env, agreement=agreement)
        asked = ask_bytes(of, request_of(of))
        begin.wait()
        answer = read_message(agent.answer(asked, agreement.digest))
        assert isinstance(answer, Answered)
        found.append(content(answer))

    at_once(*(partial(ask, each) for each in runs))
    reports = [each for each in found if isinstance(each, Report)]
    refused = [each for each in found if isinstance(each, Refusal)]
    assert (len(reports), len(refused)) == (left, WAYS - left)
    assert {each.reason for each in refused} == {Reason.OVER_BUDGET}
    assert agent.ledger.spent() <= limit
    assert agent.ledger.spent() == pytest.approx(limit)
    entries = [each for each in agent.ledger.verify() if each.run != "lost"]
    assert len({each.run for each in entries}) == len(entries) == len(reports)


# Real processes


class TwoStudies:
    """Three sites in a study of one server, by name, and in one of another, by sums."""

    def __init__(self, folder: Path, rounds: tuple[int, int], **policy: Any) -> None:
        self.folder, self.ports = folder, free_ports(2)
        tls = [write_tls(folder / "tls"), write_tls(folder / "tls-2", new_tls())]
        free = make_environment(folder / "free", f"rounds={rounds[0]}")
        no_limit = Budget("zcdp", math.inf)
        config = free.config.changed(rounds=rounds[1], epsilon=2.0)
        second = free.another_study(config, fingerprints(tls[1]))
        both = [costs_of(each, no_limit)[1] for each in (free.agreement, second)]
        self.limit = math.nextafter(sum(both), math.inf)
        table = [
            {"url": f"https://{HOST}:{port}", "ca": f"../{ca.parent.name}/ca.pem"}
            for port, ca in zip(self.ports, tls, strict=True)
        ]
        one = make_environment(
            folder,
            f"rounds={rounds[0]}",
            deadline=300.0,
            policy={
                "server": table,
                "budget": {"kind": "zcdp", "limit": self.limit},
                **policy,
            },
        )
        agreed = one.another_study(config, fingerprints(tls[1]))
        for each in one.policies:
            accept(each, agreed)
            accepted = Acceptances(each).current()
            assert [other.server for other in accepted] == [server["url"] for server in table]
            with pytest.raises(ConfigError, match="covers only 0 of"):
                accept(each, agreed.changed(run="f" * 32))
        self.studies = [one, replace(one, config=config, agreement=agreed)]
        self.agents = agents_of(one)
        self.servers = [
            server_of(study, folder / f"server-{number}", self.ports[number], tls[number].parent)
            for number, study in enumerate(self.studies)
        ]

    def rounds(self, number: int) -> int:
        """Return how many rounds of a study are complete."""
        file = self.folder / f"server-{number}" / "metrics.jsonl"
        return len(file.read_text().splitlines()) if file.exists() else 0

    def assert_whole(self) -> None:
        """Check that each study equals its simulation, and that each site paid for both once."""
        for number, study in enumerate(self.studies):
            found = bits_of(self.folder / f"server-{number}" / "model.safetensors")
            assert found == bits(simulate(study.config))
        for index in range(SITES):
            ledger = self.studies[0].ledger(index)
            entries = ledger.verify()
            for study in self.studies:
                phases = range(1 if study.agreement.channel == "named" else 4)
                places = [
                    (round, phase)
                    for round in range(1, study.config.rounds + 1)
                    for phase in phases
                ]
                of_run = [each for each in entries if each.run == study.agreement.run]
                assert [(each.round, each.phase) for each in of_run] == places
            assert 0.999 * self.limit < ledger.spent() <= self.limit
        text = "".join(log.read_text() for log in self.folder.glob("*.log"))
        assert RELEASED_TWICE not in text
        assert "Traceback" not in text


@contextmanager
def playing(folder: Path, rounds: tuple[int, int], **policy: Any) -> Iterator[TwoStudies]:
    both = TwoStudies(folder, rounds, **policy)
    with started(*both.agents, *both.servers):
        yield both


def test_a_study_goes_on_while_the_other_server_is_gone(tmp_path: Path) -> None:
    with playing(tmp_path, (2, 2)) as both:
        both.servers[1].kill()
        assert both.servers[0].wait() == 0
        both.servers[1].start()
        assert both.servers[1].wait() == 0
        both.assert_whole()


KILLS = 50


def test_50_random_kills_in_both_studies_cost_nothing_twice(tmp_path: Path) -> None:
    """The agents and the servers die at any moment, and begin again at once."""
    seed = random.randrange(1 << 32)
    draw, kills = random.Random(seed), list[str]()
    with playing(tmp_path, (60, 20), answer_after_seconds=0.2) as both:
        eventually(lambda: both.rounds(0) and both.rounds(1))
        began = time.monotonic()
        while len(kills) < KILLS:
            time.sleep(draw.uniform(0.0, 1.0))
            party = draw.choice([*both.agents, *both.servers])
            if party.process is not None and party.process.exitcode == 0:
                continue
            party.kill()
            kills.append(party.log.stem)
            party.start()
            assert any(server.alive for server in both.servers), "the studies ended too soon"
        done = [both.rounds(number) for number in range(2)]
        for server in both.servers:
            assert server.wait() == 0, f"seed {seed}: {server.text()[-2000:]}"
        both.assert_whole()
    told = {"seed": seed, "seconds": time.monotonic() - began, "rounds before the last": done}
    print(json.dumps({**told, "kills": {name: kills.count(name) for name in sorted(set(kills))}}))
