"""Advice for many clients: the study's cells, and what a run that learned nothing is told."""

import json

import pytest

import fedldp
from benchmarks.fleet_advice import PLACE, made
from fedldp.algorithms.fleet import better, cells, nearest
from fedldp.simulation.plan import dataset_of, plan, problem_of, problem_with
from fedldp.simulation.settings import from_mapping


@pytest.mark.slow
def test_the_file_is_what_the_study_has_now():
    assert PLACE.read_text(encoding="utf-8") == made()
    assert len(made().encode()) < 50_000


@pytest.mark.slow
@pytest.mark.parametrize("cell", cells()[::7], ids=lambda cell: f"{cell.where}, {cell.epsilon:g}")
def test_the_settings_of_a_cell_meet_its_epsilon(cell):
    target = {"unit": "client-run", "adversary": cell.adversary, "epsilon": cell.epsilon,
              "delta": 1e-5}  # fmt: skip
    config = from_mapping(
        {**cell.settings, "dataset": cell.data, "num_clients": cell.clients, "target": target}
    )
    lines = plan(config, problem_of(config, None)).privacy.guarantees
    epsilons = [
        line.epsilon
        for line in lines
        if (line.unit, line.adversary) == ("client-run", cell.adversary) and line.epsilon
    ]
    assert 0.99 * cell.epsilon < min(epsilons) <= cell.epsilon


def test_the_nearest_cells_are_shown(fedldp_command):
    shown = json.loads(fedldp_command("advise", "--fleet", "n=100000,per=6", "--json").out)
    assert {(each["data"], each["clients"]) for each in shown} == {("mnist", 10_000)}
    for each in shown:  # no epsilon without what it is about and rests on
        assert (each["unit"], each["delta"]) == ("client-run", 1e-5)
        kinds = {fact["kind"] for fact in each["conditions"]}
        assert "takes-part-at-most" in kinds or each["adversary"] == "downlink"
        assert ("honest-categories" in kinds) is (each["adversary"] == "shuffled-server")
    of_1000 = nearest(1200, 60)
    assert {each.data for each in of_1000} == {"mnist", "fmnist"}
    assert {each.data for each in nearest(900, 500)} == {"covertype"}
    table = fedldp_command("advise", "--fleet", "n=100000,per=6").out
    assert "10,000 clients of 6 examples" in table
    assert "k_closest" in table
    assert "condition of a shuffled-server: an honest shuffler of reports" in " ".join(
        table.split()
    )


@pytest.mark.slow
def test_a_run_that_learned_nothing_is_told_what_does_better():
    target = {"unit": "client-run", "adversary": "server", "epsilon": 4.0, "delta": 1e-5}
    settings = {"system": "composed", "dataset": "digits", "model": "logistic", "rounds": 1,
                "num_clients": 1000, "mechanism": "laplace", "bound": "norm", "clip": 1.0,
                "learning_rate": 0.1, "target": target, "partition": "drawn:1"}  # fmt: skip
    result = fedldp.run(from_mapping(settings))
    (found,) = (each for each in result.doubts if each.kind == "better-known")
    assert found.values["mechanism"] == "k_closest"
    assert found.values["epsilon"] <= 4
    learned = fedldp.run("quickstart", rounds=2)
    assert not any(each.kind == "better-known" for each in learned.doubts)
    config = from_mapping(settings | {"mechanism": "k_closest"})
    problem = problem_with(config, dataset_of(config, None), None)
    privacy = plan(config, problem).privacy
    assert better(config, privacy, 1, has_learned=False) is None  # it is the best already
    weak = from_mapping(settings | {"target": target | {"epsilon": 0.5}})
    privacy = plan(weak, problem).privacy
    assert better(weak, privacy, 1, has_learned=False) is None  # no cell protects as much


@pytest.mark.parametrize(("delta", "told"), [(1e-5, True), (1e-3, True), (1e-9, False)])
def test_a_smaller_delta_is_a_stronger_guarantee_than_any_cell_has(delta, told):
    settings = {"system": "composed", "dataset": "digits", "num_examples": 1000, "rounds": 1,
                "num_clients": 1000, "model": "logistic", "mechanism": "gaussian", "bound": "norm",
                "learning_rate": 0.1, "epsilon": 4.0, "delta": delta}  # fmt: skip
    config = from_mapping(settings)
    privacy = plan(config, problem_of(config, None)).privacy
    assert (better(config, privacy, 1, has_learned=False) is not None) is told
