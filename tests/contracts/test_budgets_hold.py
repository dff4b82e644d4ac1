"""Budgets hold over many rounds, restarts, losses, and simultaneous requests."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from subjects import configs

import fedldp
from fedldp.accounting.guarantees import local_guarantees
from fedldp.accounting.prices import cost
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.central_dp import central_dp
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import ClientBudget
from fedldp.core.errors import FedldpError, PrivacyError
from fedldp.data import Examples
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.papers.ldpfl import training as randomised_sgd
from fedldp.protocol.client_runtime import ClientRuntime
from fedldp.protocol.keys import SecretKeys, draws_of_secret, draws_of_seed
from fedldp.protocol.roles import Batch, Client, Update
from fedldp.protocol.wire import (
    Broadcast,
    Reason,
    Refusal,
    Report,
    RoundReply,
    RoundRequest,
    Sensitive,
    pack_arrays,
    pack_request,
    read_arrays,
)
from fedldp.reporting.record import Round, RunFolder, replace_file
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of, state
from fedldp.testing.cases import RUN, SEED, Case, secret_keys
from fedldp.testing.runtimes import Site, examples_of, packed_request, reply_of
from fedldp.testing.toys import MeanStep
from fedldp.training.tensors import one_thread

PURE = Budget("pure", 1e9)
"""The kind of budget for everything that has a finite zCDP."""

EPSILON = 1.0
"""The epsilon of one example's randomised gradient."""


@pytest.fixture(autouse=True)
def as_in_a_run() -> Iterator[None]:
    """Train as every process of a run does: torch's sums depend on the number of threads."""
    with one_thread():
        yield


def first_broadcast(case: Case) -> Broadcast:
    server = case.config.algorithm(case.problem).server()
    return server.publish(server.initial(draws_of_seed(SEED)(0)))


def asking(broadcast: Broadcast, round: int) -> bytes:
    told = replace(broadcast, round=round)
    return pack_request(RoundRequest(run=RUN, phase=0, broadcast=told))


def start(
    case: Case,
    folder: Path,
    *,
    examples: Examples | None = None,
    budget: Budget = PURE,
    keys: SecretKeys | None = None,
    client: int = 0,
    step: Any = None,
) -> ClientRuntime:
    """Return a real client's runtime over a folder, as after a restart."""
    return case.start(
        client,
        secret_keys(client) if keys is None else keys,
        folder,
        ledger=SqliteLedger(folder / "ledger", budget),
        role=None if step is None else replace(case.role(client), local_update=step),
        examples=examples,
        failed=lambda error: None,
    )


# Simultaneous requests, and lost draws


def test_simultaneous_requests_do_not_exceed_a_clients_rounds(tmp_path: Path) -> None:
    base = configs()["personalized-sound-digits"]
    half = base.num_clients // 2
    config = base.changed(
        rounds=6,
        selects_first=True,
        clients_per_round=None,
        clip=1.0,
        epsilon=[0.3] * half + [1.0] * (base.num_clients - half),
    )
    case = Case.of(config)
    client = int(np.argmin(case.config.turns))
    assert case.config.composition.participation.max_rounds(client) < config.rounds, (
        "else there is nothing to go beyond"
    )
    budget = Budget("zcdp", 1e9)
    told, role, answers = first_broadcast(case), case.role(client), list[bytes]()

    def ask(round: int) -> None:
        """Ask a client that gets the requests of earlier rounds while it trains for this one."""

        def train(broadcast: Broadcast, batch: Batch, group: int) -> Sensitive[Update]:
            if round > 1:
                ask(round - 1)
            return role.local_update(broadcast, batch, group)

        runtime = start(case, tmp_path, client=client, budget=budget, step=train)
        answers.append(runtime.answer(asking(told, round)))

    ask(6)
    assert len(answers) == 6, "all were open at once"
    released = Counter(entry.event for entry in SqliteLedger(tmp_path / "ledger").releases())
    epsilon, delta = case.config.composition.calibration.budget(client)
    assert local_guarantees(released, "client-run", delta)[0].epsilon <= epsilon
    assert 0 < released.total() <= case.config.composition.participation.max_rounds(client)


def test_a_lost_draw_is_not_repeated_for_free(tmp_path: Path) -> None:
    """The first draw paid for all rounds, so a second one would be free."""
    case = Case.of(configs()["ldpfl-digits-public"])
    told = first_broadcast(case)
    public = {n: -each if each.dtype == np.float32 else each for n, each in told.public.items()}
    assert isinstance(reply_of(start(case, tmp_path).answer(asking(told, 1))), Report)
    shutil.rmtree(tmp_path / "store")
    again = start(case, tmp_path).answer(asking(replace(told, public=public), 2))
    assert reply_of(again) == Refusal(2, Reason.NOT_KEPT)
    assert len(SqliteLedger(tmp_path / "ledger").releases()) == 1


def test_a_real_client_answers_even_if_its_training_fails(tmp_path: Path) -> None:
    """Whether training fails can depend on one example, and no answer would reveal that."""

    def fail(broadcast: Broadcast, client: Client) -> None:
        if client.examples.features[0, 0] > 0.5:
            raise RuntimeError("training failed")

    def answer(value: float) -> RoundReply:
        folder = tmp_path / str(value)
        folder.mkdir()
        site = Site(folder, local_update=MeanStep(fail), examples=examples_of(value))
        return reply_of(site.ask(packed_request()))

    assert isinstance(answer(0.4), Report)
    assert isinstance(answer(0.6), Report)


# Examples that are randomised once in a run


def sound(**changes: Any) -> Case:
    """Return the sound LDPFL with reports that cost ``EPSILON`` for each example."""
    config = configs()["ldpfl-sound, laplace"]
    return Case.of(config.changed(mechanism="nearest_direction", epsilon=EPSILON, **changes))


def examples_like_digits(count: int) -> Examples:
    features = np.random.default_rng(0).random((count, 1, 8, 8), dtype=np.float32)
    return Examples(features, np.arange(count) % 10)


@pytest.fixture
def used(monkeypatch: pytest.MonkeyPatch) -> Counter[int]:
    """Return how often each example has been randomised."""
    found: Counter[int] = Counter()
    original = randomised_sgd.indices_of_round

    def indices(order: NDArray[np.int64], round: int, rounds: int) -> NDArray[np.int64]:
        chosen = original(order, round, rounds)
        found.update(chosen.tolist())
        return chosen

    monkeypatch.setattr(randomised_sgd, "indices_of_round", indices)
    return found


def test_no_more_examples_are_randomised_than_charged(tmp_path: Path, used: Counter[int]) -> None:
    case = sound()
    most = case.config.algorithm(case.problem).most_examples()
    for round in range(1, case.config.rounds + 1):
        runtime = start(case, tmp_path, examples=examples_like_digits(most))
        runtime.answer(asking(first_broadcast(case), round))
    assert 0 < len(used) <= SqliteLedger(tmp_path / "ledger").spent() / EPSILON


def test_an_example_is_used_once_in_a_run_of_any_length(tmp_path: Path, used: Counter[int]) -> None:
    own, case = examples_like_digits(12), sound()
    start(case, tmp_path, examples=own).answer(asking(first_broadcast(case), 1))
    case = sound(rounds=12)
    for round in (2, 3):
        start(case, tmp_path, examples=own).answer(asking(first_broadcast(case), round))
    assert max(used.values()) == 1


# Refused at the start


def refused_at_the_start(case: Case, folder: Path, line: str, **given: Any) -> None:
    with pytest.raises(PrivacyError, match=line) as refused:
        start(case, folder, **given)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("label", [-1, 10])
@pytest.mark.parametrize("name", ["ldpfl-sound, nearest_direction", "ldpfl-digits-public"])
def test_a_client_with_a_label_outside_the_classes_is_refused_at_the_start(
    name: str, label: int, tmp_path: Path
) -> None:
    """Training would fail because of that example, and an answer without training would show it."""
    case = Case.of(configs()[name]) if name == "ldpfl-digits-public" else sound()
    own = case.own(0)
    labels = own.labels.copy()
    labels[0] = label
    line = "^examples: a label is not one of 0 to 9; remove that example$"
    refused_at_the_start(case, tmp_path, line, examples=Examples(own.features, labels))


def test_a_client_with_more_examples_than_are_charged_is_refused_at_the_start(
    tmp_path: Path,
) -> None:
    case = sound()
    most = case.config.algorithm(case.problem).most_examples()
    line = f"^examples: the client has {most + 1} examples, .* charged for {most}; leave some out$"
    refused_at_the_start(case, tmp_path, line, examples=examples_like_digits(most + 1))
    start(case, tmp_path, examples=examples_like_digits(most))


def test_keys_of_another_run_are_refused_at_the_start(tmp_path: Path) -> None:
    """What the client draws once for a run would be what it drew for the other run."""
    keys = replace(secret_keys(0), run="another")
    refused_at_the_start(
        sound(),
        tmp_path,
        f"^keys: they belong to another run; give the keys for run {RUN}$",
        keys=keys,
    )


# Statements of servers and simulations


def test_the_scale_of_central_noise_does_not_reveal_the_number_of_answers() -> None:
    config = central_dp(
        dataset="digits",
        num_clients=100,
        clients_per_round=10,
        rounds=1,
        model="logistic",
        learning_rate=0.1,
        noise_multiplier=8.0,
        clip=1.0,
    )
    server = config.algorithm(Problem((1, 8, 8), 10, 1437)).server()
    draws = draws_of_secret(bytes(32), RUN)
    initial = server.initial(draws(0))
    size = initial.weights.size
    report = Report(round=1, size=size, payload=initial.weights.astype("<f4").tobytes(), chunk=size)

    def spread(count: int) -> float:
        after, _ = server.aggregate(initial, iter([report] * count), draws(1))
        return float(np.std(after.weights))

    assert spread(1) == pytest.approx(spread(10), rel=0.2)


def refusing(rounds: int) -> RunConfig:
    """Return a configuration whose clients refuse from their third report on."""
    config = fedldp.recipe("ldp-fl-digits").changed(
        num_clients=10,
        clients_per_round=5,
        rounds=rounds,
        num_examples=400,
        local_epochs=1,
        mechanism="two_point",
        epsilon=1.0,
        ranges="fixed",
        learning_rate=0.1,
        model="logistic",
    )
    event = config.algorithm(problem_of(config, None)).encoder(0).event()
    return config.changed(client_budget=ClientBudget(limit=2 * cost(event, "pure")))


def shuffled_epsilon(statement: dict[str, Any]) -> float:
    """Return a statement's line for a client's round against a server behind a shuffler."""
    return next(
        line["epsilon"]
        for line in statement["guarantees"]
        if (line["unit"], line["adversary"]) == ("client-round", "shuffled-server")
    )


def test_the_statement_in_a_folder_holds_for_the_rounds_that_took_place(tmp_path: Path) -> None:
    """If clients refuse, a shuffler hides each report among fewer others."""
    config, out = refusing(rounds=12), tmp_path / "run"
    with pytest.raises(FedldpError, match="over-budget"):
        simulate(config, out=out)
    kept = RunFolder(out).read_checkpoint()
    assert kept is not None
    ledger = kept[2]
    (run,) = ledger.runs()
    planned = plan(config, problem_of(config, None))
    true = state(planned.scheduled, planned.problem, ledger.releases(run))
    printed = json.loads((out / "privacy.json").read_text())
    assert shuffled_epsilon(printed) >= shuffled_epsilon(true)


class Stopped(Exception):
    """The simulation was stopped after a round."""


def test_a_checkpoint_whose_ledger_was_emptied_is_not_resumed(tmp_path: Path) -> None:
    """Otherwise its clients would have their whole budgets again."""
    config, out = refusing(rounds=6), tmp_path / "run"

    def stop(record: Round) -> None:
        if record.round == 4:
            raise Stopped

    with pytest.raises(Stopped):
        simulate(config, out=out, after_round=stop)
    arrays = dict(read_arrays((out / "checkpoint").read_bytes()))
    document = json.loads(arrays["document"].tobytes())
    document["ledger"] = {"events": [], "runs": []}
    arrays["document"] = np.frombuffer(json.dumps(document).encode(), np.uint8)
    replace_file(out / "checkpoint", pack_arrays(arrays))
    with pytest.raises(FedldpError, match="its rounds and its ledgers disagree"):
        simulate(config, resume=RunFolder(out))
