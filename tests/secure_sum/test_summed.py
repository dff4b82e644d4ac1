"""A secure sum as a channel for the reports of any suitable system, through runtimes with
ledgers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, PrivacyError
from fedldp.data import Examples
from fedldp.ledgers.columns import MemoryLedger
from fedldp.mechanisms.summing import Summing, counts_of_bits
from fedldp.protocol.client_runtime import ClientRuntime, OneClient
from fedldp.protocol.keys import SecretKeys, SimulationKeys, draws_of_seed
from fedldp.protocol.roles import Update
from fedldp.protocol.server_loop import Delivery, Evaluation, Loop, Round
from fedldp.protocol.wire import (
    Broadcast,
    Counted,
    Refusal,
    Report,
    RoundRequest,
    Sensitive,
    pack_request,
    read_reply_to,
)
from fedldp.secure_sum.client import Phase, summed_client
from fedldp.secure_sum.messages import SecureSum
from fedldp.secure_sum.server import SumOfRound, summed_server
from fedldp.simulation.inputs import Inputs
from fedldp.testing.cases import CPU, RUN, runtime_of

pytestmark = pytest.mark.usefixtures("as_in_a_run")

N = 6
Tamper = Callable[[int, RoundRequest, Report | Refusal], Report | Refusal | None]


def config(**settings: Any) -> RunConfig:
    return fedldp.recipe(
        "quickstart", **{"num_clients": N, "rounds": 2, "local_epochs": 1, **settings}
    )


@dataclass
class Channel:
    """A whole run of sites whose reports go through the secure sum; sites are recreated often.

    Attributes:
        config: the configuration.
        folder: where the sites store their data.
        secret: whether the sites have their own keys rather than a simulation's.
        tamper: changes an answer in transit, or loses it.
    """

    config: RunConfig
    folder: Path
    secret: bool = False
    tamper: Tamper = lambda client, request, answer: answer
    heard: list[SumOfRound] = field(default_factory=list)
    records: list[Round] = field(default_factory=list)
    refusals: list[Exception] = field(default_factory=list)
    ledger: MemoryLedger = field(default_factory=MemoryLedger)

    def __post_init__(self) -> None:
        self.inputs = Inputs.of(self.config, None, None)
        summing = self.config.algorithm(self.inputs.problem).summing()
        assert summing is not None
        self.summing = summing
        self.setup = SecureSum.of(summing, N, 4, 1)

    def site(self, index: int) -> ClientRuntime:
        problem = self.inputs.problem
        role = summed_client(
            self.config.algorithm(problem).inside().client(index, CPU), self.summing, self.setup,
        )  # fmt: skip
        rows, train = self.inputs.members[index], self.inputs.dataset.train
        keys = (
            SecretKeys(bytes([index]) * 32, RUN)
            if self.secret
            else SimulationKeys(self.config.seed, index)
        )
        made = runtime_of(
            self.config, problem, role, keys, self.folder / str(index), self.ledger,
            index, Examples(train.features[rows], train.labels[rows]), self.refusals.append,
        )  # fmt: skip
        policy = replace(made.policy, phases=role.phases, trains_in=role.trains_in)
        return replace(made, policy=policy)

    def exchange(self, request: RoundRequest, clients: Sequence[int]) -> Iterator[Delivery]:
        for index in clients:
            own = request.to(index)
            answer = read_reply_to(own, self.site(index).answer(pack_request(own)))
            assert isinstance(answer, Report | Refusal)
            passed = self.tamper(index, own, answer)
            if passed is not None:
                yield index, passed

    def run(self) -> np.ndarray[Any, Any]:
        server = summed_server(
            self.config.algorithm(self.inputs.problem).inside().server(), self.summing, self.setup,
            heard=self.heard.append,
        )  # fmt: skip
        draws = draws_of_seed(self.config.seed)
        loop = Loop(
            run=RUN, server=server, rounds=self.config.rounds, participants=lambda round: range(N),
            transport=self, draws=draws, evaluate=lambda broadcast: Evaluation(0.5, 1.0),
        )  # fmt: skip
        first = server.initial(draws(0))
        return loop.go(first, lambda state, record: self.records.append(record)).weights


def simulated(made: RunConfig) -> np.ndarray[Any, Any]:
    return np.concatenate([w.ravel() for w in fedldp.run(made).weights.values()])


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings", [{"mechanism": "sign"}, {"mechanism": "two_point_l1", "send": "update"}]
)
def test_the_weights_are_those_of_the_simulation_bit_for_bit(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    """With certified keys: see tests/deployment/test_server.py."""
    channel = Channel(config(**settings), tmp_path)
    assert channel.run().tobytes() == simulated(channel.config).tobytes()
    assert [record.metrics["clients_in_sum"] for record in channel.records] == [N, N]


def test_shares_of_noise_add_up_to_the_weights_of_the_simulation_bit_for_bit(
    tmp_path: Path,
) -> None:
    """Batches are large enough that a simulation trains clients one by one, as sites do."""
    settings = {"num_clients": N, "rounds": 2, "local_epochs": 1, "batch_size": 40}
    channel = Channel(fedldp.recipe("distributed-gaussian-digits", **settings), tmp_path)
    assert channel.run().tobytes() == simulated(channel.config).tobytes()
    released = channel.ledger.releases(RUN)
    assert list(released.events) == [channel.site(0).members.role.encoder.event(Phase.MASKED_INPUT)]
    assert [(s.round, s.clients, s.complete, s.dropped) for s in channel.heard] == [
        (round, tuple(range(N)), complete, {}) for round in (1, 2) for complete in (False, True)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("lost", [Phase.SHARE_KEYS, Phase.MASKED_INPUT, Phase.UNMASK])
def test_a_round_without_a_sum_keeps_the_weights_and_states_what_the_server_may_know(
    lost: Phase, tmp_path: Path
) -> None:
    def lose(client: int, request: RoundRequest, answer: Any) -> Any:
        first = request.broadcast.round == 1
        return None if first and client > 2 and request.phase == lost else answer

    channel = Channel(config(), tmp_path, tamper=lose)
    channel.run()
    first = [outcome for outcome in channel.heard if outcome.round == 1]
    assert not any(outcome.complete for outcome in first)
    known = tuple(range(N)) if lost is Phase.UNMASK else ()
    assert {outcome.clients for outcome in first} == {known}
    assert [r.metrics["clients_in_sum"] for r in channel.records] == [0, N]


@pytest.mark.slow
def test_one_liar_stops_no_round_but_boxes_that_do_not_open_stop_one(tmp_path: Path) -> None:
    def garbage(client: int, request: RoundRequest, answer: Any) -> Any:
        if client == 5 and request.phase == Phase.SHARE_KEYS and isinstance(answer, Report):
            return replace(answer, payload=answer.payload[:13] + bytes(len(answer.payload) - 13))
        return answer

    channel = Channel(config(rounds=3), tmp_path, tamper=garbage)
    channel.run()
    outcomes = [outcome for outcome in channel.heard if outcome.complete]
    assert [(outcome.round, outcome.clients) for outcome in outcomes] == [
        (2, (0, 1, 2, 3, 4)), (3, (0, 1, 2, 3, 4)),
    ]  # fmt: skip


def test_a_restarted_site_draws_no_second_vector(tmp_path: Path) -> None:
    """The mechanism's noise is fresh every time; only the store makes the vector the same."""
    channel = Channel(config(rounds=1), tmp_path, secret=True)
    asked: list[RoundRequest] = []

    def note(client: int, request: RoundRequest, answer: Any) -> Any:
        if client == 0 and request.phase == Phase.MASKED_INPUT:
            asked.append(request)
        return answer

    channel.tamper = note
    channel.run()
    runtime = channel.site(0)
    channel.ledger = MemoryLedger()  # the answer was never recorded, so the site trains again
    (request,) = asked
    sent = {runtime.answer(pack_request(request))}
    given: list[Any] = []

    def giving(rows: Any, broadcast: Broadcast, batch: Any, group: int) -> Sensitive[Update]:
        given.append(rows)
        return Sensitive(Update(rows=rows))

    for weights in (0.25, -0.5):
        channel.ledger, trained = MemoryLedger(), len(given)
        restarted = channel.site(0)
        assert isinstance(restarted.members, OneClient)
        update = np.full((1, channel.summing.size), weights, np.float32)
        role = replace(restarted.members.role, local_update=partial(giving, update))  # type: ignore[arg-type]
        restarted = replace(restarted, members=replace(restarted.members, role=role))
        sent.add(restarted.answer(pack_request(request)))
        assert len(given) == trained + 1
    assert len(sent) == 1


@pytest.mark.parametrize(
    ("name", "settings", "fits"),
    [
        ("quickstart", {}, True),
        ("quickstart", {"epsilon": [1.0, 2.0], "num_clients": 2}, False),
        ("quickstart", {"mechanism": "laplace"}, False),
        ("secure-aggregation-digits", {}, True),
        ("fedavg-quickstart", {}, False),
        ("personalized-sound-digits", {"perturbation": "sign"}, False),
    ],
)
def test_which_systems_can_be_summed(name: str, settings: dict[str, Any], fits: bool) -> None:
    made = fedldp.recipe(name, **settings)
    problem = Inputs.of(made, None, None).problem
    assert (made.algorithm(problem).summing() is not None) == fits
    always = made.composition.channel.kind == "sum"
    assert always == (made.system == "secure_aggregation")


@pytest.mark.parametrize(("most", "bits"), [(2, 2), (255, 8), (256, 9), (65_535, 16)])
def test_counts_of_up_to_255_bits_cost_a_byte(most: int, bits: int) -> None:
    summing = counts_of_bits(12, most)
    assert summing.bits == bits
    report = Report(round=1, size=12, payload=bytes([0b10110001, 0b01011111]), chunk=12)
    assert summing.words(report).tolist() == [1, 0, 1, 1, 0, 0, 0, 1, 0, 1, 0, 1]
    with pytest.raises(PrivacyError, match="3 bytes does not hold 12 bits"):
        summing.words(replace(report, payload=bytes(3)))
    total = summing.total(
        3, np.array([most] * 12, SecureSum.of(summing, most, None).dtype), most - 1
    )
    assert isinstance(total, Counted)
    assert total.ones.tolist() == [most - 1] * 12


def test_only_a_system_of_one_phase_is_wrapped(tmp_path: Path) -> None:
    channel = Channel(config(), tmp_path)
    setup, summing = channel.setup, channel.summing
    with pytest.raises(ConfigError, match="one phase"):
        summed_client(channel.site(0).members.role, summing, setup)
    once = summed_server(
        channel.config.algorithm(channel.inputs.problem).inside().server(), summing, setup
    )
    with pytest.raises(ConfigError, match="one phase"):
        summed_server(once, summing, setup)
    assert isinstance(summing, Summing)
