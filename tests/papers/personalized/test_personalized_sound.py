"""The sound variant stays within every client's budget for the whole run, and weights by
variance."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from terms import asking, first_broadcast, secret_keys

from fedldp.accounting.events import GaussianReport
from fedldp.accounting.guarantees import Guarantee, guarantees_of
from fedldp.accounting.numerics.gaussian import compose_mu, gaussian_epsilon, gaussian_sigma
from fedldp.algorithms.calibration import PerRun
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError
from fedldp.ledgers.budget import Budget
from fedldp.ledgers.sqlite import SqliteLedger
from fedldp.papers.personalized.preset import personalized
from fedldp.papers.personalized.preset_sound import personalized_sound
from fedldp.protocol.keys import draws_of_seed
from fedldp.protocol.roles import Batch, State, Update
from fedldp.protocol.wire import Broadcast, Report, Sensitive
from fedldp.simulation.engine import simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.testing.cases import Case
from fedldp.testing.clients import Roles, sender_of
from fedldp.training.tensors import one_thread

DIGITS = Problem((1, 8, 8), 10, 1437)
SIZE = 650
START = ((np.arange(SIZE) % 7 - 3) / 10).astype(np.float32)


def config(**changes: Any) -> personalized_sound:
    settings: dict[str, Any] = {
        "dataset": "digits", "num_clients": 3, "rounds": 4, "epsilon": [1.0, 5.0, 10.0],
        "clip": 2.0, "num_examples": 300, "local_epochs": 2, "batch_size": 100,
    }  # fmt: skip
    return personalized_sound(**{**settings, **changes})


def roles_of(settings: personalized_sound) -> Roles:
    return Roles(settings, DIGITS)


def noise(settings: personalized_sound) -> PerRun:
    found = settings.composition.calibration
    assert isinstance(found, PerRun)
    return found


def scheduled(settings: personalized_sound) -> personalized_sound:
    return settings.with_schedule(draws_of_seed(settings.seed))


def encoded(
    settings: personalized_sound, client: int, change: np.ndarray, *, round: int = 1
) -> Report:
    told = Broadcast(round=round, weights=START)
    own = sender_of(7, client, round=round)
    return roles_of(settings).encode(START + change.astype(np.float32), told, own)


def grid_values(settings: personalized_sound, report: Report) -> np.ndarray:
    assert report.client is not None
    step = noise(settings).gaussian(report.client).ball.step
    return np.frombuffer(report.payload, "<i4") * step


def run_lines(settings: personalized_sound) -> list[Guarantee]:
    found = plan(settings, problem_of(settings, None)).privacy.guarantees
    return [line for line in found if line.unit == "client-run"]


# Budgets


@given(
    st.floats(0.01, 50),
    st.floats(1e-12, 0.1),
    st.floats(1e-3, 1e3),
    st.integers(1, 300),
)
def test_the_reports_of_a_run_cost_a_client_almost_its_whole_budget(
    epsilon: float, delta: float, clip: float, rounds: int
) -> None:
    settings = config(epsilon=epsilon, client_delta=delta, clip=clip, rounds=rounds)
    try:
        event = noise(settings).gaussian(0).event(SIZE)
    except ConfigError:
        return  # more noise than the mechanism can draw
    assert isinstance(event, GaussianReport)
    mu = compose_mu([(event.mu, rounds)])
    assert gaussian_epsilon(mu, delta) <= epsilon
    # The clip is a whole number of grid steps, 400 or more.
    assert mu >= (1 - 3e-3) / gaussian_sigma(epsilon, delta)


def test_clients_have_their_own_budget_and_clip() -> None:
    settings = config(client_delta=[1e-3, 1e-4, 1e-5], clip=[1.0, 2.0, 3.0])
    for client, (epsilon, delta) in enumerate([(1.0, 1e-3), (5.0, 1e-4), (10.0, 1e-5)]):
        event = roles_of(settings).encoder(client).event()
        assert isinstance(event, GaussianReport)
        spent = gaussian_epsilon(compose_mu([(event.mu, 4)]), delta)
        assert spent == pytest.approx(epsilon, rel=1e-4)
        assert spent <= epsilon


def test_a_client_that_may_be_drawn_in_every_round_is_prepared_for_it() -> None:
    settings = config(clients_per_round=1)
    assert [noise(settings).rounds_of(client) for client in range(3)] == [4, 4, 4]
    assert run_lines(settings)[0].epsilon < 10.0


# Selection before anyone trains


def selections(settings: personalized_sound) -> list[list[int]]:
    """Return who takes part in each round, as the server's seed draws it."""
    draws = draws_of_seed(settings.seed)
    found = [
        settings.composition.participation.clients(round, draws)
        for round in range(1, settings.rounds + 1)
    ]
    assert None not in found
    return [list(chosen or ()) for chosen in found]


def test_unselected_clients_send_nothing_and_pay_nothing() -> None:
    result = simulate(config(participation="preselected", rounds=8))
    settings = scheduled(config(participation="preselected", rounds=8))
    selected = selections(settings)
    for client in range(3):
        sent = [r for r, chosen in enumerate(selected, 1) if client in chosen]
        assert sum(result.ledger.history(result.run, client).values()) == len(sent)
        assert noise(settings).rounds_of(client) == len(sent)
        event = roles_of(settings).encoder(client).event()
        assert isinstance(event, GaussianReport)
        spent = gaussian_epsilon(compose_mu([(event.mu, len(sent))]), 1e-5)
        assert spent == pytest.approx([1.0, 5.0, 10.0][client], rel=1e-4)
    counts = [len(chosen) for chosen in selected]
    assert [record.clients for record in result.rounds] == counts
    assert min(counts) >= 1
    assert len(set(counts)) > 1
    # The client with the largest budget is among those that any omega selects.
    assert noise(settings).rounds_of(2) == 8 > noise(settings).rounds_of(0)


def test_a_client_learns_its_own_rounds_and_those_of_no_other() -> None:
    settings = scheduled(config(participation="preselected", rounds=8, seed=5))
    for client in range(3):
        told = settings.for_client(client)
        assert noise(told).rounds_of(client) == noise(settings).rounds_of(client)
        assert noise(told).sigma(client) == noise(settings).sigma(client)
        given = told.model_dump()
        assert given["turns"] == {"own": noise(settings).rounds_of(client)}
        assert given["epsilon"] == {"own": [1.0, 5.0, 10.0][client]}
        assert given["seed"] == 0


def test_the_selection_is_the_servers_secret_and_not_the_configurations() -> None:
    settings = config(participation="preselected", rounds=8)
    first, other = (settings.with_schedule(draws_of_seed(seed)).turns for seed in (0, 1))
    assert first != other
    with pytest.raises(ConfigError, match=r"^turns is not set: .* preselected .*schedule"):
        settings.algorithm(DIGITS).encoder(0)
    with pytest.raises(ConfigError, match=r"^turns is not set: .* preselected .*schedule"):
        settings.algorithm(DIGITS).server()


def test_rounds_that_the_server_does_not_draw_are_refused() -> None:
    settings = scheduled(config(participation="preselected", rounds=8))
    assert scheduled(settings) == settings
    assert isinstance(settings.turns, list)
    fewer = settings.changed(turns=[settings.turns[0] - 1, *settings.turns[1:]])
    with pytest.raises(
        ConfigError, match=r"^turns: client 0 has \d+, but the server's draws select it \d+ times"
    ):
        scheduled(fewer)
    with pytest.raises(
        ConfigError, match=r"^turns: client 0 has \d+, but the server's draws select it \d+ times"
    ):
        simulate(fewer)


def test_simultaneous_requests_do_not_exceed_a_clients_rounds(tmp_path: Path) -> None:
    """Each request arrives while the client trains for the one before."""
    case = Case.of(config(rounds=6, participation="preselected", epsilon=[0.3, 1.0, 1.0]))
    told, role, answers = first_broadcast(case), case.role(0), list[bytes]()

    def ask(round: int) -> None:
        def train(broadcast: Broadcast, batch: Batch, group: int) -> Sensitive[Update]:
            if round > 1:
                ask(round - 1)
            return role.local_update(broadcast, batch, group)

        runtime = case.start(
            0, secret_keys(0), tmp_path,
            ledger=SqliteLedger(tmp_path / "ledger", Budget("zcdp", 1e9)),
            role=replace(role, local_update=train),  # type: ignore[arg-type]
        )  # fmt: skip
        answers.append(runtime.answer(asking(told, round)))

    with one_thread():
        ask(6)
    assert len(answers) == 6, "all were open at once"
    released = Counter(entry.event for entry in SqliteLedger(tmp_path / "ledger").releases())
    epsilon, delta = noise(case.config).budget(0)
    assert guarantees_of(released, "client-run", delta)[0].epsilon <= epsilon
    assert 0 < released.total() <= noise(case.config).rounds_of(0) < 6


@pytest.mark.parametrize("kind", [personalized_sound, personalized])
def test_a_client_with_few_examples_still_reports(kind: Any) -> None:
    """A refusal would reveal the number, and no event charges for that."""
    few = {"num_clients": 4, "rounds": 5, "num_examples": 22, "partition": "power-law:3"}
    settings = config(perturbation="sign", sampling_probability=0.01, epsilon=1.0, **few)
    made = kind(**settings.model_dump(include={*kind.model_fields} - {"system"}))
    assert [record.clients for record in simulate(made).rounds] == [4] * 5


# The average


def test_reports_are_weighted_by_their_inverse_variance() -> None:
    settings = config(clip=[1.0, 2.0, 0.5])
    changes = [np.sin(np.arange(SIZE) + client) / 50 for client in range(3)]
    reports = [encoded(settings, client, change) for client, change in enumerate(changes)]
    precision = np.array([noise(settings).sigma(client) ** -2 for client in range(3)])
    values = np.array([grid_values(settings, report) for report in reports])
    expected = START + (precision / precision.sum()) @ values
    following, _ = roles_of(settings).aggregate(reports, State(weights=START))
    np.testing.assert_allclose(following.weights, expected, rtol=1e-5, atol=1e-5)


# Invalid settings


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("epsilon", -1.0), ("epsilon", 0.0), ("epsilon", math.nan), ("epsilon", math.inf),
        ("client_delta", 0.0), ("client_delta", 2.5), ("clip", -1.0), ("clip", math.inf),
        ("turns", -1), ("turns", 2.5), ("turns", math.nan),
    ],
)  # fmt: skip
def test_one_clients_settings_have_the_limits_of_everyones(name: str, value: float) -> None:
    scheduled_config = {"participation": "preselected", "epsilon": 1.0, "turns": 2}
    assert noise(config(**scheduled_config).for_client(1)).rounds_of(1) == 2
    refused = []
    for told in (value, {"own": value}):
        with pytest.raises(ConfigError, match=rf"^{name} = {value}: ") as refusal:
            config(**{**scheduled_config, name: told})
        refused.append(str(refusal.value))
    assert refused[0] == refused[1]
    assert "\n" not in refused[0]


# Secure sums


def in_sums(**changes: Any) -> personalized_sound:
    given = {"channel": "sum", "weighting": "uniform", "largest_epsilon": 10.0, **changes}
    return config(**given)


def test_the_grid_of_sums_follows_from_the_largest_budget_alone() -> None:
    problem = problem_of(in_sums(), None)
    units, noises = set(), []
    for epsilon in (1.0, 3.0, 10.0):
        settings = in_sums(epsilon=epsilon)
        mechanism = settings.algorithm(problem).release(0).mechanism
        alone = config(epsilon=epsilon).algorithm(problem).release(0).mechanism
        assert alone.sigma <= mechanism.sigma <= alone.sigma * (1 + 2.0**-10)
        assert mechanism.event(650).mu <= alone.event(650).mu
        units.add(mechanism.unit)
        noises.append(mechanism.sigma)
    assert len(units) == 1
    assert noises == sorted(noises, reverse=True)
