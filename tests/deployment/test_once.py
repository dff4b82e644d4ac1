"""Real sites that answer once or in committees, and a server that adds noise: as simulated."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from environments import (
    CHANNELS,
    Environment,
    FakePipe,
    asks,
    bits,
    gone_from,
    make_environment,
    serve_until_killed,
    summing,
)

import fedldp
from fedldp.core.errors import ConfigError
from fedldp.core.kinds import HONEST_SUMMANDS, SIMULATED
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.messages import pack, read_message
from fedldp.deployment.sites import Stopped
from fedldp.mechanisms import discrete
from fedldp.mechanisms.discrete import discrete_gaussian
from fedldp.protocol.wire import (
    Reason,
    Refusal,
    Report,
    pack_request,
    read_reply,
    read_request,
)
from fedldp.simulation.engine import simulate

ONCE = ("participation=once", "rounds=2", "learning_rate=0.05")


def rounds_of(env: Environment) -> list[list[int]]:
    """Return the rounds in which each site released something."""
    places = range(len(env.policies))
    return [sorted({round for round, _ in env.releases(index)}) for index in places]


@pytest.mark.slow
@CHANNELS
def test_each_site_answers_in_one_round_as_in_the_simulation(tmp_path: Path, channel: str) -> None:
    env = make_environment(tmp_path, *ONCE, sites=5, quorum=2, channel=channel)
    assert env.agreement.rounds_of(0) == 1
    served = env.serve()
    assert bits(served) == bits(simulate(env.config))
    assert [record.clients for record in served.rounds] == [3, 2]
    found = rounds_of(env)
    assert sorted(map(len, found)) == [1] * 5
    assert [sum(each == [round] for each in found) for round in (1, 2)] == [3, 2]
    for index, policy in enumerate(env.policies):
        a_round, run = policy.costs(env.agreement)
        assert a_round == run
        assert env.ledger(index).spent() <= run


@pytest.mark.slow
def test_a_site_refuses_a_second_round_whoever_asks(tmp_path: Path) -> None:
    env = make_environment(tmp_path, *ONCE, sites=4, quorum=2, seeded=False)
    pipe = env.pipe()
    env.serve(pipe)
    for index in range(4):
        (own,) = (round for (round,) in [rounds_of(env)[index]])
        body = next(body for to, body, _ in pipe.seen if to == index and asks(body, round=own))
        message = read_message(body)
        request = read_request(message.request)
        told = replace(request.broadcast, round=3 - own)
        forged = pack(replace(message, request=pack_request(replace(request, broadcast=told))))
        before = env.releases(index)
        for agent in (pipe.agents[index], env.agent(index).answer):  # also after a restart
            assert agent is not None
            answer = read_message(agent(forged))
            _, _, refusal = read_reply(answer.answer)
            assert isinstance(refusal, Refusal)
            # The site has answered its round, or has answered a later round but never this one.
            assert refusal.reason is (Reason.POLICY if own == 1 else Reason.NOT_KEPT)
            assert env.releases(index) == before
            again = read_message(agent(body))
            assert isinstance(read_reply(again.answer)[2], Report), "its own round it recalls"


@pytest.mark.slow
@pytest.mark.parametrize(("round", "seeded"), [(1, True), (2, False)])
def test_a_restarted_server_keeps_its_cohorts(tmp_path: Path, round: int, seeded: bool) -> None:
    env = make_environment(tmp_path, *ONCE, sites=6, quorum=3, seeded=seeded)
    pipe = serve_until_killed(env, round, answered=1)
    before = rounds_of(env)
    again = FakePipe(pipe.agents)
    served = env.serve(again)
    after = rounds_of(env)
    assert [record.clients for record in served.rounds] == [3, 3]
    assert all(len(each) == 1 for each in after)
    assert all(old in ([], new) for old, new in zip(before, after, strict=True))
    if seeded:
        assert bits(served) == bits(simulate(env.config))


@pytest.mark.slow
def test_cohorts_differ_between_runs(tmp_path: Path) -> None:
    """Cohorts come from the server's secret, which is neither at the sites nor in the agreement."""
    runs = []
    for number in range(2):
        env = make_environment(tmp_path / str(number), *ONCE, sites=12, quorum=6, seeded=False)
        env.serve()
        runs.append(rounds_of(env))
    assert runs[0] != runs[1]  # equal with probability 1/924


@CHANNELS
def test_an_agreement_has_the_decided_participation(tmp_path: Path, channel: str) -> None:
    env = make_environment(
        tmp_path, "participation=auto", "rounds=2", sites=4, quorum=3 - (channel == "named"),
        channel=channel,
    )  # fmt: skip
    found = env.agreement.config.model_dump().get("participation")
    assert found == ("once" if channel == "named" else None)
    assert env.agreement.rounds_of(0) == (1 if channel == "named" else 2)


def test_a_quorum_beyond_a_cohort_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"quorum = 3: a round has 2 sites"):
        make_environment(tmp_path, *ONCE, sites=5, quorum=3)


COMMITTEES = ("channel=sum", "committee=3", "rounds=1")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("recipe", "examples"), [("quickstart", 150), ("distributed-gaussian-digits", 1400)]
)
def test_a_run_with_committees_equals_its_simulation_bit_for_bit(
    recipe: str, examples: int, tmp_path: Path
) -> None:
    """Clients have enough examples that a simulation trains them one by one, as sites do."""
    settings = (*COMMITTEES, f"num_examples={examples}", "batch_size=40")
    env = make_environment(tmp_path, *settings, recipe=recipe, sites=7, channel="sum", quorum=3)
    agreement = Agreement.parse(env.agreement.to_bytes())
    assert agreement.digest == env.agreement.digest
    assert (agreement.setup.num_clients, agreement.setup.threshold) == (4, 3)
    served = env.serve()
    simulated = fedldp.run(env.config)
    assert bits(served) == {name: w.tobytes() for name, w in simulated.weights.items()}
    told = {line.unit: line.epsilon for line in summing(simulated.privacy)}
    assert told
    assert {line.unit: line.epsilon for line in summing(served.privacy)} == told


@pytest.mark.slow
def test_a_failed_committee_is_left_out_and_the_statement_covers_the_other(
    tmp_path: Path,
) -> None:
    env = make_environment(tmp_path, *COMMITTEES, sites=7, channel="sum", quorum=3, deadline=1.0)
    served = env.serve(env.pipe(tamper=gone_from(2, 1)))
    assert served.rounds[0].metrics["clients_in_sum"] == 4
    lines = summing(served.privacy)
    assert lines
    honest = HONEST_SUMMANDS(clients=4, among="committee")
    assert all(honest in line.assumptions for line in lines)
    assert env.server().privacy == served.privacy


@pytest.mark.slow
def test_a_round_without_a_committee_quorum_is_told_in_one_line(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    env = make_environment(tmp_path, *COMMITTEES, sites=7, channel="sum", quorum=3, deadline=1.0)
    missed = re.compile(r"4 of 7 sites took part .* and 3 of one committee must")
    with pytest.raises(Stopped):
        env.server().serve(
            env.pipe(tamper=gone_from(0, 1, 2, 4)),
            lambda record: None,
            lambda: missed.search(caplog.text) is not None,
        )


def test_a_quorum_is_per_committee_and_noise_is_sized_for_a_whole_one(tmp_path: Path) -> None:
    settings = (*COMMITTEES, "untrusted_clients=1")
    with pytest.raises(ConfigError, match="quorum = 4: a committee has 3 sites"):
        make_environment(tmp_path, *settings, sites=7, channel="sum", quorum=4)


IN_CLEAR = {"allow_in_clear": True, "budget": {"kind": "zcdp", "limit": math.inf}}


def central(folder: Path, channel: str, **given: Any) -> Environment:
    return make_environment(
        folder, "batch_size=1000000", recipe="central-dp-digits-discrete", channel=channel,
        policy=IN_CLEAR, **given,
    )  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("channel", ["named", "sum"])
def test_a_run_gives_the_weights_of_the_simulation(channel: str, tmp_path: Path) -> None:
    env = central(tmp_path, channel)
    served = env.serve()
    assert bits(served) == bits(simulate(env.config))
    lines = {(line.unit, line.adversary): line.kind for line in served.privacy.guarantees}
    assert lines == {
        ("client-round", "server"): "none",
        ("client-run", "server"): "none",
        ("client-run", "downlink"): "approximate",
    }


@pytest.mark.slow
def test_real_keys_draw_the_discrete_gaussian(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    drawn: list[int] = []

    def sampled(count: int, scale_bits: int, stream: Any) -> np.ndarray:
        assert not stream.simulated
        drawn.append(count)
        return discrete_gaussian(count, scale_bits, stream)

    monkeypatch.setattr(discrete, "discrete_gaussian", sampled)
    env = central(tmp_path, "sum", seeded=False)
    served = env.serve()
    assert drawn.count(env.agreement.layout.size) >= len(served.rounds) == 2
    assert SIMULATED not in served.privacy.warnings
