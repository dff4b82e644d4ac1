"""Committees of real sites: weights as in a simulation, and a statement for the smallest sum."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from environments import bits, make_environment

import fedldp
from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.statement import Statement
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.kinds import HONEST_SUMMANDS
from fedldp.deployment.agreement import parse_agreement
from fedldp.deployment.messages import Ask, read_by_site
from fedldp.protocol.wire import read_request

COMMITTEES = ("channel=sum", "committee=3", "rounds=1")


def summing(privacy: Statement) -> list[Guarantee]:
    return [line for line in privacy.guarantees if line.adversary == "summing-server"]


def gone(nodes: set[int], phase: int) -> Any:
    def tamper(node: int, asked: bytes, answer: bytes | None) -> list[bytes | None]:
        message = read_by_site(asked)
        lost = isinstance(message, Ask) and read_request(message.request).phase >= phase
        return [None if lost and node - 100 in nodes else answer]

    return tamper


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
    agreement = parse_agreement(env.agreement.to_bytes())
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
    served = env.serve(env.pipe(tamper=gone({1}, 2)))
    assert served.rounds[0].metrics["clients_in_sum"] == 4
    lines = summing(served.privacy)
    assert lines
    honest = HONEST_SUMMANDS(clients=4, among="committee")
    assert all(honest in line.assumptions for line in lines)
    assert env.server().privacy == served.privacy


@pytest.mark.slow
def test_a_round_without_a_committee_quorum_ends_with_one_line(tmp_path: Path) -> None:
    env = make_environment(tmp_path, *COMMITTEES, sites=7, channel="sum", quorum=3, deadline=1.0)
    with pytest.raises(RunError, match=r"4 of 7 sites took part .* and 3 of one committee must"):
        env.serve(env.pipe(tamper=gone({1, 2, 4}, 0)))


def test_a_quorum_is_per_committee_and_noise_is_sized_for_a_whole_one(tmp_path: Path) -> None:
    settings = (*COMMITTEES, "untrusted_clients=1")
    with pytest.raises(ConfigError, match="quorum = 4: a committee has 3 sites"):
        make_environment(tmp_path, *settings, sites=7, channel="sum", quorum=4)
