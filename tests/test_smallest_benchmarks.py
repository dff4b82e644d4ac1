"""Every benchmark runs: here those that no other test runs, at their smallest sizes."""

from __future__ import annotations

import ast
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
from guides import ROOT
from small_files import write_small

from fedldp.audit.efforts import Effort
from fedldp.data.sources import SOURCES
from fedldp.reporting.record import RunFolder

BENCHMARKS = ROOT / "benchmarks"
LEAST = Effort(
    member_clients=8, member_runs=2, member_rounds=1, member_candidates=20, image_count=2,
    image_known=4, image_matched=1, image_steps=2, image_public=8, property_clients=8,
    lying_rounds=1,
)  # fmt: skip


class Smallest:
    """A benchmark, of which a test changes the sizes.

    Attributes:
        module: the benchmark.
        folder: an empty folder.
    """

    def __init__(self, name: str, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.module: ModuleType = import_module(f"benchmarks.{name}")
        self.folder, self._patch = folder, patch
        patch.setattr(RunFolder, "write_round", RunFolder.write_round)  # scale times it

    def of(self, **sizes: Any) -> Smallest:
        """Set constants of the module."""
        for name, value in sizes.items():
            self._patch.setattr(self.module, name, value)
        return self

    def main(self, *arguments: object) -> None:
        """Run it as from the command line."""
        self._patch.setattr(sys, "argv", [self.module.__name__, *map(str, arguments)])
        self.module.main()

    def lines(self, name: str) -> list[dict[str, Any]]:
        """Return the lines of a file of results."""
        return [json.loads(line) for line in (self.folder / name).read_text().splitlines()]


def advise_tables(small: Smallest) -> None:
    small.of(SITES={"north": (9, 52, -0.3)}, PEOPLE=20).main(small.folder)
    tables = {path.stem for path in small.folder.glob("*.csv")}
    assert tables == {"raw", *(path.stem for path in small.folder.glob("*.toml"))}


def attacks(small: Smallest) -> None:
    small.of(FULL=LEAST).main("run", small.folder / "rows", "fedavg-digits")
    rows = {"fedavg-digits": small.lines("rows")}
    assert small.module.membership_table(rows).count("fedavg-digits") == 1
    assert "fedavg-digits" in small.module.inversion_table(rows)


def cifar_trials(small: Smallest) -> None:
    trial = small.module.Trial(
        norm="batch", epsilon=10, shift=1, momentum=0.5, widths=(8, 8, 8), epochs=1, rounds=1,
        clients=2,
    )  # fmt: skip
    small.of(CLIENTS=5, EXAMPLES=10, TRIALS={"recipe": small.module.Trial(), "tiny": trial})
    small.module.measure(small.folder / "rows", ["tiny"])
    assert "| tiny | norm batch, epochs 1" in small.module.table(small.lines("rows"))


def distributed_gaussian(small: Smallest) -> None:
    module, at = small.module, ("logistic", 10)
    once = module.tried(1, 1.0, 0.2, 1)
    kinds = ("clip only 0", "distributed 8", "central 8", "local 8", "fedavg 0")
    small.of(
        CHOSEN={at: once}, LOCAL={at: {**once, "mechanism": "privunit"}},
        CELLS=module.group(*at, *kinds),
    ).main(small.folder / "rows", 1)  # fmt: skip
    assert len(small.lines("rows")) == len(kinds)
    small.main(small.folder / "rows", "--table")


def fleet_sizes(small: Smallest) -> None:
    small.main(small.folder / "rows", 50, 4.0)
    (row,) = small.lines("rows")
    assert row["proven"]["epsilon"] <= 4


def k_closest(small: Smallest) -> None:
    few = {"SIZES": (8,), "EPSILONS": (1.0,), "BIAS_EPSILONS": (8.0,), "BIAS_SIZE": 63}
    small.of(**few, COST_SIZE=8, COST_TIMES=1)
    small.main(small.folder / "page", "--reports", 20, "--seeds", 100)
    assert "| 8 | 1 |" in (small.folder / "page").read_text()


def kernels(small: Smallest) -> None:
    small.of(REPETITIONS=1, SIZES=(400_000,)).main()


def linkage(small: Smallest) -> None:
    module = small.module
    effort = replace(module.EFFORT, timing_trials=20, content_trials=20, content_clients=10)
    few = {"TRIALS": {100: 10}, "DELAYS": (1.0,), "CLOCKS": module.CLOCKS[:1]}
    small.of(EFFORT=effort, **few, CONTENTS=((8.0, 100, 10),), CHUNKS=(650,))
    module.measure(small.folder / "rows")
    rows = small.lines("rows")
    assert "T = 1 s" in module.delay_table(rows, 100, "any")
    assert "chunk 650" in module.chunk_table(rows)


def many_clients(small: Smallest) -> None:
    module = small.module
    cell = ("digits", "pixels", 10, 4.0, module.ANY[:1])
    small.of(CELLS=[cell], ROUNDS_ONCE=module.ROUNDS_ONCE[:1]).main(small.folder / "rows")
    (row,) = (line for line in module.lines(module.RunStore(small.folder / "rows").rows)[2:])
    assert row.startswith("| digits, pixels | 10 | 4 |")
    assert "| 3 | rounds 1, reach 1, rate 0.4 |" in row


def measure(small: Smallest) -> None:
    small.of(PARTS={"nothing": (["blocks"], "Nothing")})
    small.main("--environments", small.folder, "--out", small.folder / "page", "--skip", "peers")
    assert "`blocks`" in (small.folder / "page").read_text()


def person_step(small: Smallest) -> None:
    small.of(REPETITIONS=1).main()


def poisoning(small: Smallest) -> None:
    module = small.module
    few = {"num_clients": 4, "rounds": 1}
    effort = replace(LEAST, lying_shares=module.SHARES, lying_attacks=module.ATTACKS)
    small.of(FULL=effort, systems=lambda: ["fedavg"], CHANGED={"fedavg": few})
    module.measure(small.folder / "rows")
    lines = small.lines("rows")
    assert all("`fedavg`" in module.attack_table(lines, attack) for attack in module.ATTACKS)
    assert "`fedavg`" in module.influence_table(lines)


def priority_maps(small: Smallest) -> None:
    few = {"rounds": 1, "num_examples": 200, "num_clients": 2}
    small.of(ROUNDS=(1,), SETTINGS=few).module.main(small.folder, None)
    assert len([*small.folder.glob("*.png")]) == 3


def public_alone(small: Smallest) -> None:
    module, digits = small.module, small.module.public_digits()
    few = digits.taken(np.arange(50))
    columns = {"alone": module.Column("mnist", None, 1), "clients": module.Column("mnist", 16.0, 1)}
    small.of(KINDS=("none", module.ENCODER), COLUMNS=columns, public_digits=lambda: few)
    small.of(COMMON={**module.COMMON, "num_clients": 10, "local_epochs": 1})
    module.measure(small.folder / "rows")
    assert len(small.lines("rows")) == 4
    assert f"| `{module.ENCODER}` |" in module.table(small.lines("rows"))


def round(small: Smallest) -> None:
    small.of(WORKERS=1).main("ldp-fl-mnist", 1, 2)


def scale(small: Smallest) -> None:
    for once in (False, True):
        assert small.module.one(20, once)["mib"] > 0


def small_clients(small: Smallest) -> None:
    small.of(CLIENTS=64, ROUNDS=2)
    for side, rounds in small.module.SIDES.items():
        assert all(seconds > 0 for seconds in rounds()), side


def startup(small: Smallest) -> None:
    module, command = small.module, [sys.executable, "-m", "fedldp"]
    assert module.to_the_end([*command, "--help"])
    assert module.to_the_first_line([*command, "run"], terminal=True)


def tracked(small: Smallest) -> None:
    small.of(TIMES=1, WEIGHTS=400_000, BLOCKS=1, COMMANDS={"help": ("--help",)})
    small.main(small.folder / "rows")
    assert set(small.lines("rows")[0]["figures"]) == {"encode, over plain torch", "help"}
    small.main("--show", small.folder / "rows")


RUNS: list[Callable[[Smallest], None]] = [
    advise_tables, attacks, cifar_trials, distributed_gaussian, fleet_sizes, k_closest, kernels,
    linkage, many_clients, measure, person_step, poisoning, priority_maps, public_alone, round,
    scale, small_clients, startup, tracked,
]  # fmt: skip


@pytest.fixture
def few_images(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let MNIST have 600 images for training, and CIFAR-10 have 50."""
    folder = tmp_path_factory.mktemp("data")
    monkeypatch.setenv("FEDLDP_DATA", str(folder))
    mnist, cifar10 = write_small("mnist", folder, train=600), write_small("cifar10", folder)
    monkeypatch.setitem(SOURCES, "mnist", replace(mnist, num_train=600, num_examples=620))
    monkeypatch.setitem(SOURCES, "cifar10", replace(cifar10, num_train=50, num_examples=60))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:.*LeafSpec:FutureWarning")  # from torch.export
@pytest.mark.parametrize("run", RUNS)
def test_a_benchmark_runs_at_its_smallest_size(
    run: Callable[[Smallest], None],
    few_images: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run(Smallest(run.__name__, tmp_path, monkeypatch))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("framework", "package"), [("plain", "torch"), ("pfl", "pfl"), ("flower", "flwr")]
)
def test_a_peer_runs_its_smallest_workload(
    framework: str, package: str, few_images: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In this environment, which need not have the peer; fedldp writes what the peer reads."""
    pytest.importorskip(package)
    monkeypatch.syspath_prepend(BENCHMARKS / "peers")
    peers = import_module("run")
    monkeypatch.setattr(peers, "PINNED", {})
    cell = peers.Cell(framework, 2, peers.WORKLOADS["many-100"], 0)
    found = peers.run(cell, tmp_path, 300)
    assert found["rounds"] == cell.rounds
    assert min(found["seconds_per_round"], found["cpu_seconds_per_round"], found["peak_mib"]) > 0


@pytest.mark.slow
def test_fedldp_runs_the_smallest_workload_of_its_peers(
    few_images: None, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(BENCHMARKS / "peers")
    module = import_module("fedldp_cell")
    given = "--inputs . --workload many-100 --seed 0 --cores 1 --rounds 2"
    monkeypatch.setattr(sys, "argv", ["fedldp_cell", *given.split()])
    module.main()
    said = capsys.readouterr().out.splitlines()
    events = [json.loads(line.removeprefix("@cell "))["event"] for line in said if line]
    assert events == ["round", "round", "done"]


def test_each_benchmark_has_a_test() -> None:
    """Those that import it use or check it; a new one belongs into the list above."""
    tested = {each.__name__ for each in RUNS}
    for path in (ROOT / "tests").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "from benchmarks" not in text:
            continue
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("benchmarks"):
                part = (node.module or "").partition(".")[2].partition(".")[0]
                tested |= {part} if part else {alias.name for alias in node.names}
    known = {
        path.stem if path.suffix else path.name
        for path in BENCHMARKS.iterdir()
        if (path.suffix == ".py" and "__main__" in path.read_text(encoding="utf-8"))
        or (path / "__init__.py").exists()
    }
    assert known <= tested
