"""Every round's record says what was spent, for each unit and each budget."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest

import fedldp
from fedldp.simulation.plan import MOST, Spending, plan, problem_of

WHOLE_RUN = {"record", "person", "client-run"}


def spending(name: str, rounds: int, **settings: Any) -> Spending:
    config = fedldp.recipe(name, rounds=rounds, **settings)
    return Spending(plan(config, problem_of(config, None)))


def stated(name: str, rounds: int, **settings: Any) -> dict[tuple[str, str], float]:
    """Return the best epsilon of a whole run, for each unit and adversary."""
    found: dict[tuple[str, str], float] = {}
    for line in fedldp.account(name, rounds=rounds, **settings).guarantees:
        key = line.unit, line.adversary
        if line.unit in WHOLE_RUN:
            epsilon = math.inf if line.epsilon is None else line.epsilon
            found[key] = min(epsilon, found.get(key, math.inf))
    return found


def epsilons(found: list[dict[str, Any]]) -> dict[tuple[str, str], float]:
    return {
        (line["unit"], line["adversary"]): math.inf if line["epsilon"] is None else line["epsilon"]
        for line in found
    }


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    ["quickstart", "fedavg-quickstart", "person-dp-sgd-digits", "central-dp-digits-discrete"],
)
def test_a_round_records_what_a_run_ending_there_would_state(name: str) -> None:
    """This holds for noise that does not depend on the number of rounds."""
    same = not name.startswith(("person", "distributed"))
    counts = spending(name, 4)
    for round in range(1, 5):
        now = epsilons(counts.after(round))
        if round == 4 or same:
            ended = stated(name, round)
            assert {key: now[key] for key in now} == {key: ended[key] for key in now}
        if round == 4:
            assert now.keys() == ended.keys()
        assert all(line["of"] is None or line["of"] >= line["epsilon"] for line in counts.after(4))


@pytest.mark.parametrize(("noise", "ideal"), [("gaussian", True), ("discrete-gaussian", False)])
def test_figures_for_real_arithmetic_only_are_marked(noise: str, ideal: bool) -> None:
    counts = spending("central-dp-digits", 2, noise=noise, clients_per_round=None)
    for round in (1, 2):
        marks = {line["adversary"]: line["idealised"] for line in counts.after(round)}
        assert marks == {"server": False, "downlink": ideal}


@pytest.mark.slow
def test_each_of_many_rounds_has_at_least_its_own_figure() -> None:
    rounds = 3 * MOST + 1
    counts = spending("quickstart", rounds)
    found = [
        epsilons(counts.after(round))["client-run", "server"] for round in range(1, rounds + 1)
    ]
    assert found == sorted(found)
    assert len(set(found)) == MOST
    for round in (1, 2, 30, rounds - 1):
        assert found[round - 1] >= stated("quickstart", round)["client-run", "server"]
    assert found[-1] == stated("quickstart", rounds)["client-run", "server"]


def test_the_run_folder_records_spending_in_every_round(tmp_path: Path) -> None:
    budget = {"kind": "zcdp", "limit": 700.0}  # a round costs rho 325
    with pytest.raises(fedldp.FedldpError, match="took part"):
        fedldp.run("quickstart", rounds=3, client_budget=budget, out=tmp_path / "run")
    lines = [
        json.loads(line) for line in (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()
    ]
    assert [line["budgets"][0]["spent"] for line in lines] == [325.0, 650.0]
    assert [line["budgets"][0]["left"] for line in lines] == [375.0, 50.0]
    assert all(line["budgets"][0]["unit"] == "client" for line in lines)
    for line in lines:
        (server,) = [one for one in line["spent"] if one["adversary"] == "server"]
        assert server["unit"] == "client-run"
        assert 0 < server["epsilon"] <= server["of"]
