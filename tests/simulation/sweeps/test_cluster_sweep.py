"""A sweep on a Ray cluster of two nodes equals the sweep of one process, bit for bit."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import assert_same_run, cut, quick
from ray_nodes import installed, of_two_nodes, two_nodes

import fedldp
from fedldp.core.errors import RunError
from fedldp.data.sources import SOURCES
from fedldp.simulation import ray_cluster
from fedldp.simulation.engine import simulate
from fedldp.simulation.sweeps import ray_tasks

SHORT = {"rounds": 3, "num_clients": 5, "local_epochs": 1}

pytestmark = [installed, of_two_nodes]


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, marks: Path) -> Iterator[Any]:
    """Two nodes to which this process stays connected, so that their workers stay alive."""
    with two_nodes(tmp_path_factory.mktemp("modules"), marks) as found:
        yield found


@pytest.fixture
def a_round_each(monkeypatch: pytest.MonkeyPatch) -> None:
    """End every stretch of a run after one round."""
    monkeypatch.setattr(ray_tasks, "SECONDS", 0.0)


def both(tmp_path: Path, recipe: Any = "quickstart", **given: Any) -> tuple[Any, Any]:
    """Return a sweep's result on the cluster, after comparing its folder with that of this
    process."""
    on_cluster, alone = (
        fedldp.sweep(recipe, out=tmp_path / name, **given, **where)
        for name, where in (("cluster", {"cluster": "auto"}), ("alone", {"workers": 1}))
    )
    folders = {path.parent.name for path in (tmp_path / "alone").glob("*/summary.json")}
    assert folders
    assert folders == {path.parent.name for path in (tmp_path / "cluster").glob("*/summary.json")}
    for name in folders:
        one, other = (tmp_path / place / name for place in ("cluster", "alone"))
        assert kept(one / "clients") == kept(other / "clients")
        if not (one / "clients").exists():
            assert_same_run(one, other)
        assert (one / "model.safetensors").read_bytes() == (
            other / "model.safetensors"
        ).read_bytes()
        assert json.loads((one / "summary.json").read_text())["run_dir"] == str(one)
    assert without_times(on_cluster) == without_times(alone)
    assert on_cluster.failed == alone.failed
    return on_cluster, alone


def kept(folder: Path) -> dict[str, bytes]:
    """Return all files that clients keep, by path."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


def without_times(result: fedldp.Sweep) -> list[dict[str, Any]]:
    return [{k: v for k, v in run.items() if k not in ("seconds", "run_dir")}
            for run in result.runs]  # fmt: skip


def test_runs_on_two_nodes_have_the_bits_of_one_process(
    cluster: Any, marks: Path, tmp_path: Path, a_round_each: None
) -> None:
    given = {**SHORT, "model": "watched_model:Watched"}
    found, _ = both(tmp_path, grid={"epsilon": [1, 2]}, seeds=range(2), **given)
    assert len(found.runs) == 4
    import ray

    assert {mark.name for mark in marks.iterdir()} == {node["NodeID"] for node in ray.nodes()}


def test_refused_and_failed_runs_are_in_the_result_and_others_run(
    cluster: Any, tmp_path: Path
) -> None:
    grid = {"learning_rate": [0.1, 1e30], "clients_per_round": [2, 99]}
    found, _ = both(tmp_path, grid=grid, model="mlp", **SHORT)
    assert len(found.runs) == 1
    assert sum("NaN" in failure["reason"] for failure in found.failed) == 1


# Clients' files are passed from stretch to stretch: those of a run (bits drawn once) and of a
# round.
@pytest.mark.parametrize(
    ("recipe", "less"),
    [("ldpfl-digits", {"encoder_epochs": 1}), ("secure-aggregation-digits", {})],
)
def test_clients_files_are_kept(
    cluster: Any, tmp_path: Path, recipe: str, less: dict[str, Any], a_round_each: None
) -> None:
    both(tmp_path, recipe, rounds=2, num_clients=5, local_epochs=1, **less)
    assert list((tmp_path / "cluster").glob("*/clients/client-0/*"))


def test_a_comparison_is_that_of_one_process(cluster: Any, tmp_path: Path) -> None:
    given = {
        "guarantee": "client-run:server", "epsilon": 16, "tries": 2, "seeds": [0, 1],
        "num_clients": 12, "rounds": 1, "local_epochs": 1,
    }  # fmt: skip
    recipes = ["privunit-fl-digits", "nbafl-digits", "fedavg-digits"]
    on_cluster, alone = (
        fedldp.compare(recipes, out=tmp_path / name, **given, **where)
        for name, where in (("cluster", {"cluster": "auto"}), ("alone", {"workers": 1}))
    )
    assert on_cluster.rows == alone.rows
    assert [row["seeds"] for row in alone.rows] == [2, 2, 0]


def test_a_users_data_are_sent(cluster: Any, tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    data = fedldp.Dataset.from_arrays(rng.random((60, 4), dtype=np.float32), rng.integers(0, 2, 60))
    settings = {**SHORT, "model": "logistic", "standardise": False}
    both(
        tmp_path, "fedavg-quickstart", grid={"learning_rate": [0.1, 0.2]}, dataset=data, **settings
    )


def published(folder: Path, name: str) -> None:
    """Write files that a data folder accepts as a published data set."""
    import gzip
    import struct

    rng, place = np.random.default_rng(len(name)), folder / SOURCES[name].folder
    place.mkdir(parents=True)
    for file, shape in zip(
        SOURCES[name].files, [(120, 28, 28), (120,), (40, 28, 28), (40,)], strict=True
    ):
        header = bytes([0, 0, 8, len(shape)]) + struct.pack(f">{len(shape)}I", *shape)
        values = rng.integers(0, 10, shape, dtype=np.uint8)
        content = gzip.compress(header + values.tobytes())
        (place / file.name).write_bytes(content.ljust(file.size, b"\0"))


def test_only_this_machine_needs_the_data_folder(cluster: Any, tmp_path: Path) -> None:
    for name in ("mnist", "fmnist"):
        published(tmp_path / "data", name)
    recipes = [
        fedldp.recipe("fedavg-mnist", **SHORT, model="logistic", standardise=True),
        fedldp.recipe(
            "ldpfl-mnist", rounds=2, num_clients=4, local_epochs=1, encoder="public",
            public_dataset="fmnist", encoder_epochs=1,
        ),
    ]  # fmt: skip
    both(tmp_path, recipes, data_dir=tmp_path / "data")


def test_an_interrupted_run_continues_on_the_cluster(cluster: Any, tmp_path: Path) -> None:
    given = {"grid": {"epsilon": [2]}, "num_clients": 6, "rounds": 4, "local_epochs": 1}
    fedldp.sweep(out=tmp_path / "sweep", workers=1, **given)
    (run,) = (path.parent for path in (tmp_path / "sweep").glob("*/summary.json"))
    for path in sorted(run.iterdir()):
        path.unlink()
    run.rmdir()
    config = quick(epsilon=2)
    cut(config, run, after=2)
    found = fedldp.sweep(out=tmp_path / "sweep", cluster="auto", **given)
    assert len(found.runs) == 1
    simulate(config, recipe="quickstart", out=tmp_path / "whole")
    assert_same_run(run, tmp_path / "whole")
    first, *_ = (run / "metrics.jsonl").read_text().splitlines()
    assert json.loads(first)["seconds"] > 0


def test_a_killed_worker_changes_no_bit_and_stdout_has_only_json(
    cluster: Any, marks: Path, tmp_path: Path, a_round_each: None, fedldp_command: Any
) -> None:
    (marks / "kill").touch()
    settings = {**SHORT, "model": "watched_model:Watched"}
    found = fedldp_command(
        "sweep", "--cluster", "auto", "--out", tmp_path / "cluster", "--json",
        *(f"--set={key}={value}" for key, value in settings.items()),
    )  # fmt: skip
    assert (marks / "killed").exists()
    assert "(raylet)" in found.err  # Ray would print this on stdout
    (run,) = json.loads(found.out)["runs"]
    fedldp.sweep(out=tmp_path / "alone", workers=1, **settings)
    folder = Path(run["run_dir"])
    assert_same_run(folder, tmp_path / "alone" / folder.name)


def test_a_lost_node_changes_no_bit(cluster: Any, marks: Path, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)

    def lose() -> None:
        while not (marks / node.node_id).exists():
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)

    loser = threading.Thread(target=lose)
    loser.start()
    both(tmp_path, seeds=range(3), **{**SHORT, "rounds": 20, "model": "watched_model:Watched"})
    loser.join(60)
    assert not loser.is_alive()


def test_a_lost_or_broken_task_fails_only_its_run(
    cluster: Any, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    models = [f"watched_model:{name}" for name in ("Deadly", "Broken", "Watched")]
    found = fedldp.sweep(grid={"model": models}, cluster=cluster.address, **SHORT)
    assert [run["settings"]["model"] for run in found.runs] == [models[2]]
    reasons = {failure["settings"]["model"]: failure["reason"] for failure in found.failed}
    assert reasons[models[0]].startswith("the cluster lost a run and did not finish it in 4")
    assert reasons[models[1]].startswith("ValueError: the model is broken; its traceback is on")
    said = capfd.readouterr().err
    assert "said before the end" in said
    assert "Traceback (most recent call last):" in said


def test_different_nodes_end_the_sweep_with_one_line(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ray_cluster, "version", lambda name: "0.0")
    with pytest.raises(RunError, match=r"^cluster: fedldp is .* and 0\.0 where the run was start"):
        fedldp.sweep(cluster="auto", **SHORT)


def test_a_model_given_as_an_object_is_not_sent(cluster: Any) -> None:
    from torch import nn

    class Own(nn.Sequential):
        def __init__(self, shape: tuple[int, ...], classes: int) -> None:
            super().__init__(nn.Flatten(), nn.Linear(64, classes))

    config = fedldp.recipe("quickstart", model=Own, **SHORT)
    (failure,) = fedldp.sweep(config, cluster="auto").failed
    assert failure["reason"].startswith("cluster = auto: the model was given as an object")


def test_a_sweep_interrupted_by_the_user_leaves_no_process_and_can_be_continued(
    cluster: Any, fedldp_process: Any, fedldp_command: Any, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """``test_cli_sweep.py`` has a sweep that is killed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FEDLDP_TEST_MARKS", str(tmp_path))
    settings = {"num_clients": 5, "local_epochs": 1, "rounds": 20}
    given = [f"--set={key}={value}" for key, value in settings.items()]
    command = fedldp_process(
        "sweep", "--seeds", "0-2", "--cluster", cluster.address, "--out", "sweep", *given
    )
    command.wait_until(lambda: list(tmp_path.glob("sweep/*/summary.json")) != [])
    command.interrupt()
    outcome = command.end()
    command.assert_no_one_is_left()
    assert outcome.status == 130
    assert outcome.err.splitlines()[-1] == "interrupted; continue with: fedldp sweep --resume sweep"
    assert "Traceback" not in outcome.err
    again = fedldp_command("sweep", "--resume", "sweep", "--cluster", "auto", "--json")
    assert again.status == 0, again.err
    assert " finished before" in again.err
    runs = json.loads(again.out)["runs"]
    assert len(runs) == 3
    whole = tmp_path / "whole"
    simulate(fedldp.recipe("quickstart", seed=2, **settings), recipe="quickstart", out=whole)
    assert_same_run(tmp_path / runs[-1]["run_dir"], whole)
