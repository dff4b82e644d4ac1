"""Runs and sweeps on a Ray cluster of two nodes have the bits of one process."""

from __future__ import annotations

import json
import socket
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from folders import assert_same, assert_same_run, cut, quick, without_times
from ray_nodes import installed, of_two_nodes, two_nodes

import fedldp
from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.experiments import cluster as on_nodes
from fedldp.simulation import cluster as ray_cluster
from fedldp.simulation.engine import simulate
from fedldp.simulation.settings import to_toml

SHORT = {"rounds": 3, "num_clients": 5, "local_epochs": 1}
WATCHED = {**SHORT, "model": "watched_model:Watched"}


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
    """End every stretch of a run of a sweep after one round."""
    monkeypatch.setattr(on_nodes, "SECONDS", 0.0)


def nodes_of(marks: Path) -> None:
    nodes = {node["NodeID"] for node in sys.modules["ray"].nodes() if node["Alive"]}
    assert {mark.name for mark in marks.iterdir()} >= nodes


def kept(folder: Path) -> dict[str, bytes]:
    """Return all files that clients keep, by path."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


# One run


@installed
@of_two_nodes
def test_a_killed_worker_changes_no_bit_and_stdout_has_only_json(
    cluster: Any, marks: Path, tmp_path: Path, fedldp_command: Any
) -> None:
    config = quick(model=WATCHED["model"], num_clients=12, rounds=3, ranges="adaptive", seed=7)
    (tmp_path / "run.toml").write_text(to_toml(config))
    (marks / "kill").touch()
    found = fedldp_command(
        "run", tmp_path / "run.toml", "--cluster", "auto", "--out", tmp_path / "run", "--json"
    )
    assert (marks / "killed").exists()
    nodes_of(marks)
    assert "(raylet)" in found.err  # which Ray would print on stdout
    assert json.loads(found.out)["run_dir"] == str(tmp_path / "run")
    alone = simulate(config, recipe=str(tmp_path / "run.toml"))
    assert_same(alone, fedldp.load(tmp_path / "run"))


@installed
@of_two_nodes
def test_an_interrupted_run_continues_on_the_other_executor(cluster: Any, tmp_path: Path) -> None:
    config = quick()
    simulate(config, recipe="quickstart", out=tmp_path / "whole")
    cut(config, tmp_path / "cut", after=2)
    fedldp.resume(tmp_path / "cut", cluster=cluster.address)
    assert_same_run(tmp_path / "cut", tmp_path / "whole")


@installed
@of_two_nodes
def test_errors_of_a_cluster_are_the_users_one_line(
    cluster: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = quick(model="mlp", learning_rate=1e30)
    with pytest.raises(PrivacyError, match=r"^round 1, client 0: [^\n]*NaN[^\n]*$"):
        fedldp.run(config, cluster=cluster.address, out=tmp_path / "run")
    assert not (tmp_path / "run").exists()
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"already connected to .*; call ray\.shutdown"):
            fedldp.run(quick(), cluster=address)
    monkeypatch.setattr(ray_cluster, "version", lambda name: "0.0")
    for begin in (lambda: fedldp.run(quick(), cluster="auto"),
                  lambda: fedldp.sweep(cluster="auto", **SHORT)):  # fmt: skip
        with pytest.raises(RunError, match=r"^cluster: fedldp is .* and 0\.0 where the run was"):
            begin()


# Sweeps and comparisons


def both(tmp_path: Path, recipe: Any = "quickstart", **given: Any) -> Any:
    """Return the result of a sweep on the cluster, after comparing its folder with that of this
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
        assert json.loads((one / "summary.json").read_text())["run_dir"] == str(one)
    assert without_times(on_cluster) == without_times(alone)
    assert on_cluster.failed == alone.failed
    return on_cluster


@installed
@of_two_nodes
def test_a_sweep_in_stretches_has_the_bits_of_one_process(
    cluster: Any, marks: Path, tmp_path: Path, a_round_each: None
) -> None:
    both(tmp_path / "kept", "secure-aggregation-digits", **SHORT)
    assert list((tmp_path / "kept" / "cluster").glob("*/clients/client-0/*"))
    rng = np.random.default_rng(0)
    own = fedldp.Dataset.from_arrays(rng.random((60, 4), dtype=np.float32), rng.integers(0, 2, 60))
    (marks / "killed").unlink(missing_ok=True)
    (marks / "kill").touch()
    found = both(
        tmp_path / "own", "fedavg-quickstart", grid={"learning_rate": [0.1, 1e30]}, dataset=own,
        standardise=False, **WATCHED,
    )  # fmt: skip
    assert (len(found.runs), len(found.failed)) == (1, 1)
    assert (marks / "killed").exists()
    nodes_of(marks)


@installed
@of_two_nodes
def test_a_lost_node_changes_no_bit(cluster: Any, marks: Path, tmp_path: Path) -> None:
    node = cluster.add_node(num_cpus=1, object_store_memory=100 * 2**20)

    def lose() -> None:
        while not (marks / node.node_id).exists():
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)

    loser = threading.Thread(target=lose)
    loser.start()
    both(tmp_path, seeds=range(3), **{**WATCHED, "rounds": 20})
    loser.join(60)
    assert not loser.is_alive()


@installed
@of_two_nodes
def test_a_lost_or_broken_task_fails_only_its_run(
    cluster: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    from torch import nn

    monkeypatch.setattr(ray_cluster, "RETRIES", 1)  # a new process for each attempt

    class Own(nn.Sequential):
        def __init__(self, shape: tuple[int, ...], classes: int) -> None:
            super().__init__(nn.Flatten(), nn.Linear(64, classes))

    models = [f"watched_model:{name}" for name in ("Deadly", "Broken", "Watched")]
    found = fedldp.sweep(grid={"model": models}, cluster=cluster.address, **SHORT)
    assert [run["settings"]["model"] for run in found.runs] == [models[2]]
    reasons = {failure["settings"]["model"]: failure["reason"] for failure in found.failed}
    assert reasons[models[0]].startswith("the cluster lost a task and did not finish it in 2")
    assert reasons[models[1]].startswith("code of your own: ValueError: the model is broken (")
    said = capfd.readouterr().err
    assert "said before the end" in said
    (failure,) = fedldp.sweep(
        fedldp.recipe("quickstart", model=Own, **SHORT), cluster="auto"
    ).failed
    assert failure["reason"].startswith("cluster = auto: the model was given as an object")


@installed
@of_two_nodes
def test_an_interrupted_run_leaves_no_process_and_can_be_continued(
    cluster: Any, fedldp_process: Any, fedldp_command: Any, tmp_path: Path
) -> None:
    """A sweep is interrupted in test_cli_sweep.py, and continued in stretches."""
    settings = {"num_clients": 40, "local_epochs": 1, "rounds": 12}
    given = [f"--set={name}={value}" for name, value in settings.items()]
    command = fedldp_process("run", "--cluster", cluster.address, "--out", "here", *given)
    command.wait_until((tmp_path / "here" / "checkpoint").exists)
    command.interrupt()
    outcome = command.end()
    command.assert_no_one_is_left()
    assert outcome.status == 130
    last = "interrupted; continue with: fedldp run --resume here"
    assert outcome.err.splitlines()[-1] == last
    assert "Traceback" not in outcome.err
    place = tmp_path / "here"
    again = fedldp_command("run", "--resume", place, "--cluster", "auto", "--json")
    assert again.status == 0, again.err
    simulate(fedldp.recipe("quickstart", **settings), recipe="quickstart", out=tmp_path / "whole")
    assert_same_run(place, tmp_path / "whole")


# What needs no cluster


@installed
def test_an_address_where_nothing_answers_is_refused_in_one_line(
    tmp_path: Path, fedldp_command: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # free again, so not in use
    line = fedldp_command(
        "run", "--cluster", f"127.0.0.1:{port}", "--out", tmp_path / "run"
    ).assert_refused()
    assert line.startswith(f"error: cluster = 127.0.0.1:{port}: cannot connect (")
    assert not (tmp_path / "run").exists()


def test_without_ray_a_line_says_how_to_install_it(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(sys.modules, "ray", None)
    for command in ("run", "sweep"):
        line = fedldp_command(command, "--cluster", "auto").assert_refused()
        assert line.endswith("install it with pip install 'fedldp[ray]'")
    assert list(tmp_path.iterdir()) == []
