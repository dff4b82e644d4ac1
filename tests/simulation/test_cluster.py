"""A Ray cluster of two nodes on this machine gives the results of one process, bit for bit."""

from __future__ import annotations

import json
import socket
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from folders import assert_same_run, cut, quick
from ray_nodes import installed, of_two_nodes, two_nodes

import fedldp
from fedldp.algorithms.config import RunConfig
from fedldp.core.errors import ConfigError, PrivacyError, RunError
from fedldp.simulation import ray_cluster
from fedldp.simulation.engine import Result, simulate
from fedldp.simulation.settings import to_toml


@pytest.fixture(scope="module")
def marks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("marks")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory, marks: Path) -> Iterator[Any]:
    """Two nodes to which this process stays connected, so that their workers stay alive."""
    with two_nodes(tmp_path_factory.mktemp("modules"), marks) as found:
        yield found


def assert_same(one: Result, other: Result) -> None:
    """Check that two runs agree bit for bit in weights and metrics, and in their ledgers."""
    assert one.weights.keys() == other.weights.keys()
    for name, weights in one.weights.items():
        assert weights.tobytes() == other.weights[name].tobytes(), name
    for left, right in zip(one.rounds, other.rounds, strict=True):
        assert (left.accuracy, left.loss, left.metrics) == (
            right.accuracy, right.loss, right.metrics
        )  # fmt: skip
    assert one.run == other.run
    assert one.ledger.releases(one.run) == other.ledger.releases(one.run)
    assert one.privacy == other.privacy


def watched(**settings: Any) -> RunConfig:
    return quick(model="watched_model:Watched", num_clients=12, rounds=2, **settings)


@installed
@of_two_nodes
def test_two_nodes_give_the_bits_of_one_process(cluster: Any, marks: Path) -> None:
    config = watched(ranges="adaptive", clients_per_round=11)
    spread = fedldp.run(config, cluster=cluster.address)
    assert {mark.name for mark in marks.iterdir()} == {
        node["NodeID"] for node in sys.modules["ray"].nodes()
    }
    assert_same(fedldp.run(config), spread)


@installed
@of_two_nodes
def test_a_killed_worker_changes_no_bit_and_stdout_has_only_json(
    cluster: Any, marks: Path, tmp_path: Path, fedldp_command: Any
) -> None:
    settings = watched(seed=7)
    (tmp_path / "run.toml").write_text(to_toml(settings))
    (marks / "kill").touch()
    found = fedldp_command(
        "run", tmp_path / "run.toml", "--cluster", "auto", "--out", tmp_path / "run", "--json"
    )
    assert (marks / "killed").exists()
    assert "(raylet)" in found.err  # which Ray would print on stdout
    assert json.loads(found.out)["run_dir"] == str(tmp_path / "run")
    alone = simulate(settings, recipe=str(tmp_path / "run.toml"))
    assert_same(alone, fedldp.load(tmp_path / "run"))


# Clients' files are sent with their tasks: those of a run (bits drawn once) and of a round.
@installed
@pytest.mark.parametrize(
    ("recipe", "less"),
    [("ldpfl-digits", {"encoder_epochs": 1}), ("secure-aggregation-digits", {})],
)
@of_two_nodes
def test_clients_files_come_back(
    cluster: Any, tmp_path: Path, recipe: str, less: dict[str, Any]
) -> None:
    config = fedldp.recipe(recipe, rounds=2, num_clients=5, local_epochs=1, **less)
    alone, spread = (
        simulate(config, out=tmp_path / name, cluster=where)
        for name, where in (("alone", None), ("spread", cluster.address))
    )
    assert_same(alone, spread)
    one, other = (kept(tmp_path / name / "clients") for name in ("alone", "spread"))
    assert one == other
    assert one


def kept(folder: Path) -> dict[str, bytes]:
    """Return all files that clients keep, by path."""
    paths = (path for path in folder.rglob("*") if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


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
def test_an_error_in_a_worker_is_the_users_one_line(cluster: Any, tmp_path: Path) -> None:
    config = quick(model="mlp", learning_rate=1e30)
    with pytest.raises(PrivacyError, match=r"^round 1, client 0: .*NaN") as refusal:
        fedldp.run(config, cluster=cluster.address, out=tmp_path / "run")
    assert len(str(refusal.value).splitlines()) == 1
    assert not (tmp_path / "run").exists()


@installed
@of_two_nodes
def test_different_nodes_are_refused(cluster: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray_cluster, "version", lambda name: "0.0")
    with pytest.raises(RunError, match=r"^cluster: fedldp is .* and 0\.0 where the run was start"):
        fedldp.run(quick(), cluster=cluster.address)


@installed
@of_two_nodes
def test_a_cluster_other_than_the_connected_one_is_refused(cluster: Any) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(ConfigError, match=r"already connected to .*; call ray\.shutdown"):
            fedldp.run(quick(), cluster=address)


@installed
@of_two_nodes
def test_the_command_connects_and_an_interrupt_prints_one_line(
    cluster: Any, tmp_path: Path, fedldp_process: Any
) -> None:
    command = fedldp_process(
        "run", "--rounds", 500, "--set", "num_clients=40", "--set", "local_epochs=1",
        "--cluster", cluster.address, "--out", "run",
    )  # fmt: skip
    command.wait_until(lambda: command.errors().count("\nround ") >= 2)
    before = command.errors().splitlines()
    command.interrupt()
    outcome = command.end()
    assert outcome.status == 130
    new = [line for line in outcome.err.splitlines()[len(before) :]
           if not line.startswith("round ")]  # fmt: skip
    assert new == ["interrupted; continue with: fedldp run --resume run"], outcome.err
    command.assert_no_one_is_left()


# Refusals, which need no cluster


@installed
def test_an_address_where_nothing_answers_is_refused_in_one_line(
    tmp_path: Path, fedldp_command: Any
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]  # free again, so not in use
    line = fedldp_command(
        "run", "--cluster", f"127.0.0.1:{port}", "--out", tmp_path / "run"
    ).assert_refused()
    assert line.startswith(f"error: cluster = 127.0.0.1:{port}: nothing answers there")
    assert not (tmp_path / "run").exists()


@installed
@pytest.mark.parametrize("address", ["here", "ray://127.0.0.1:10001", ":6379", "host:port", ""])
def test_a_bad_address_is_refused(fedldp_command: Any, address: str) -> None:
    line = fedldp_command("run", "--cluster", address).assert_refused()
    assert line.startswith(f"error: cluster = {address}: give auto or the head's address")


def test_without_ray_a_line_says_how_to_install_it(
    fedldp_command: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "ray", None)
    line = fedldp_command("run", "--cluster", "auto").assert_refused()
    assert line.endswith("install it with pip install 'fedldp[ray]'")


@pytest.mark.parametrize("more", [["--workers", 2], ["--device", "cuda"]])
def test_a_cluster_excludes_workers_and_a_gpu(fedldp_command: Any, more: list[object]) -> None:
    line = fedldp_command("run", "--cluster", "auto", *more).assert_refused()
    assert "cluster = auto" in line
