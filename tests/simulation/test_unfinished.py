"""A run that was stopped has a model, a report, a card and a true statement from round 1 on."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import cut, quick
from gate.reports import RUNS
from safetensors.numpy import load_file

import fedldp
from fedldp.accounting.statement import Statement
from fedldp.core.errors import RunError
from fedldp.core.kinds import MODEL_SO_FAR, NOT_FINISHED
from fedldp.protocol.wire import read_arrays
from fedldp.reporting import words
from fedldp.simulation.engine import simulate
from fedldp.simulation.evaluating import evaluate
from fedldp.simulation.plan import Plan, plan, state
from fedldp.simulation.recorded import load_trained, read_run, weights_of
from fedldp.simulation.settings import resolve

AVERAGED = "composed-balanced"
STATED = ("ldp_fl-budget", "ldp_fl-budget-own", "person_dp_sgd")


def checkpoint_of(folder: Path) -> dict[str, Any]:
    return dict(read_arrays((folder / "checkpoint").read_bytes()))


@pytest.mark.slow
@pytest.mark.parametrize(
    "name", [AVERAGED, "ldp_fl-adaptive", "central_dp-median", "personalized", "ldpfl_sound"]
)
def test_the_checkpoint_holds_the_model_of_every_system(tmp_path: Path, name: str) -> None:
    recipe, settings = RUNS[name]
    simulate(resolve(recipe, settings), out=tmp_path / "run")
    expected = load_file(tmp_path / "run" / "model.safetensors")
    for file in ("summary.json", "model.safetensors", "report.html"):
        (tmp_path / "run" / file).unlink()
    found = weights_of(tmp_path / "run")
    assert found.keys() == expected.keys()
    for key, weights in expected.items():
        assert found[key].tobytes() == weights.tobytes()
    assert len(read_run(tmp_path / "run").summary["rounds"]) == 3


@pytest.mark.parametrize("rounds", [1, 3])
def test_a_stopped_run_has_the_model_of_its_checkpoint(tmp_path: Path, rounds: int) -> None:
    cut(quick(), tmp_path / "run", rounds)
    state, found = checkpoint_of(tmp_path / "run"), weights_of(tmp_path / "run")
    vector = np.concatenate([each.ravel() for each in found.values()])
    assert vector.tobytes() == state["weights"].tobytes()
    line = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1]
    scores = evaluate(tmp_path / "run")
    assert scores["accuracy"] == pytest.approx(json.loads(line)["accuracy"])
    so_far = MODEL_SO_FAR(done=rounds, of=4)
    assert scores["warnings"][0] == words.shown(so_far)
    assert load_trained(tmp_path / "run").so_far == so_far
    assert f"after {rounds} of 4 rounds" in repr(fedldp.load(tmp_path / "run"))


def test_the_model_of_a_stopped_run_is_averaged_as_it_was_tested(tmp_path: Path) -> None:
    recipe, settings = RUNS[AVERAGED]
    cut(resolve(recipe, [*settings, "average=1.0"]), tmp_path / "run", 2)
    vector = np.concatenate([each.ravel() for each in weights_of(tmp_path / "run").values()])
    assert not np.array_equal(vector, checkpoint_of(tmp_path / "run")["weights"])
    line = (tmp_path / "run" / "metrics.jsonl").read_text().splitlines()[-1]
    assert evaluate(tmp_path / "run")["accuracy"] == pytest.approx(json.loads(line)["accuracy"])


@pytest.mark.parametrize("name", STATED)
def test_a_stopped_run_states_what_its_rounds_released(tmp_path: Path, name: str) -> None:
    """The oracle is the plan, cut after the same round."""
    recipe, settings = RUNS[name]
    config = resolve(recipe, settings)
    cut(config, tmp_path / "run", 2)
    found = read_run(tmp_path / "run")
    planned: Plan = plan(config, fedldp.simulation.inputs.Inputs.of(config, None, None).problem)
    releases = planned.releases.before(3)
    stated = state(planned.scheduled, planned.problem, releases, delta=planned.delta)
    assert found.privacy.guarantees == stated.guarantees
    assert found.privacy.warnings[: len(stated.warnings)] == stated.warnings
    assert found.privacy.warnings[-1] == NOT_FINISHED(done=2, of=3)
    assert _of_runs(found.privacy) <= _of_runs(planned.privacy)


def _of_runs(privacy: Statement) -> list[float]:
    """Return the epsilons of a statement that cover all rounds and are not infinite."""
    found = [each.epsilon for each in privacy.guarantees if each.unit != "weight"]
    return sorted(each for each in found if each is not None)


def test_the_commands_say_that_a_run_is_not_finished(
    tmp_path: Path, fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    cut(quick(), tmp_path / "run", 3)
    before = {
        path.name: path.read_bytes() for path in (tmp_path / "run").iterdir() if path.is_file()
    }
    np.savez("new.npz", features=np.zeros((2, 1, 8, 8), np.float32))
    for command in (("evaluate", "run"), ("predict", "run", "--data", "new.npz"), ("card", "run"),
                    ("report", "run"), ("report", "run", "--json")):  # fmt: skip
        outcome = fedldp_command(*command)
        assert outcome.status == 0, outcome.err
    for command in (("evaluate", "run"), ("predict", "run", "--data", "new.npz")):
        outcome = fedldp_command(*command)
        assert "after 3 of 4 rounds" in outcome.out + outcome.err
    assert "after 3 of 4 rounds" in Path("report.html").read_text()
    assert "3 of 4 rounds" in Path("run/card/README.md").read_text()
    assert json.loads(Path("run/card/privacy.json").read_text())["run"]["rounds"] == 3
    # What is published works by itself.
    for name in ("config.json", "schema.json"):
        shutil.copy(Path("run") / name, Path("run/card"))
    assert fedldp_command("predict", "run/card", "--data", "new.npz").status == 0
    # Reading has changed nothing.
    assert before == {n: (tmp_path / "run" / n).read_bytes() for n in before}


def test_a_model_beside_a_card_is_not_replaced(tmp_path: Path, fedldp_command: Any) -> None:
    cut(quick(), tmp_path / "run", 1)
    mine = tmp_path / "mine" / "model.safetensors"
    mine.parent.mkdir()
    mine.write_bytes(b"mine")
    line = fedldp_command("card", tmp_path / "run", "--out", mine.parent).assert_refused()
    assert "another model.safetensors" in line
    assert mine.read_bytes() == b"mine"
    for _ in range(2):  # our own is replaced
        assert fedldp_command("card", tmp_path / "run", "--out", tmp_path / "card").status == 0


def test_a_simulation_that_the_budget_ends_has_a_report(tmp_path: Path) -> None:
    config = quick(client_budget={"limit": 1300.0}, channel="named", rounds=4)
    with pytest.raises(RunError, match="a resumed run would end here too"):
        simulate(config, out=tmp_path / "run")
    assert "after 2 of 4 rounds" in (tmp_path / "run" / "report.html").read_text()


def test_before_the_first_round_there_is_no_model(tmp_path: Path) -> None:
    cut(quick(), tmp_path / "run", 1)
    (tmp_path / "run" / "checkpoint").unlink()
    for read in (read_run, load_trained, fedldp.load):
        with pytest.raises(RunError, match="no round of the run is complete"):
            read(tmp_path / "run")  # type: ignore[operator]
