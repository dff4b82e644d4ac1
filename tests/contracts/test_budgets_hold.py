"""Budgets hold whatever fails, and statements are true of what took place."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedldp
from fedldp.accounting.prices import cost
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.central_dp import central_dp
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import ClientBudget
from fedldp.core.errors import FedldpError
from fedldp.protocol.keys import draws_of_secret
from fedldp.protocol.roles import Client
from fedldp.protocol.wire import (
    Broadcast,
    Report,
    RoundReply,
    pack_arrays,
    read_arrays,
)
from fedldp.reporting.record import Round, RunFolder, replace_file
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of, state
from fedldp.testing.cases import RUN
from fedldp.testing.runtimes import Site, examples_of, packed_request, reply_of
from fedldp.testing.toys import MeanStep


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
    config = fedldp.recipe("quickstart").changed(
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
