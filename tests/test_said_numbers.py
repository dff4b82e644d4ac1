"""What the README and pages say of measurements in words is what the committed results have.

Their tables are generated, and have tests of their own; here are the sentences around them.
"""

from __future__ import annotations

import functools
import json
import math
import re
import statistics
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from study_results import (
    EPSILONS,
    GAUSSIAN,
    IN_A_SUM,
    NEAREST,
    PRIVUNIT,
    RESULTS,
    TRUSTED,
    at,
    lost,
    without_noise,
)

from fedldp.recipes import find_recipe
from fedldp.reproduction.comparison import proven
from fedldp.reproduction.results import published

ROOT = Path(__file__).parents[1]
README, REPRODUCTION, STUDY = "README.md", "docs/reproduction.md", "docs/study.md"

FAR = ("table1-fixed-eps5", "fig5b-eps3", "fig5b-eps4", "table1-fixed-eps10")
GAPS = ("", "epochs10", "channels32", "channels32-epochs10", "momentum-epochs10")
BOTH = "gap-channels32-epochs10"
BITS = (
    "ldp_fl, two_point",
    "ldp_fl, two_point_l1",
    "ldp_fl, sign",
    "personalized_sound, signs",
    "personalized, dp-sign",
)
CURVES = ("none", "low", "high", "lmh-a", "lmh-b", "lmh-c")


@functools.cache
def text(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def of(recipe: str) -> float:
    """Return the percent of a committed result of the reproduction."""
    return 100 * published()[recipe].mean


def after(recipe: str, rounds: int) -> float:
    mean, _ = published()[recipe].after[str(rounds)]
    assert mean is not None
    return 100 * mean


def span(values: Iterable[float]) -> list[float]:
    found = sorted(values)
    return [found[0], found[-1]]


def noise_on_fmnist(changed: str) -> float:
    """Return what LDP-FL's noise costs in a pair of rows of the gap."""
    twin, noisy = (f"gap-{changed}",) * 2 if changed else ("", "table1-adaptive-eps5")
    return of(f"fedavg-fmnist-{twin}".rstrip("-")) - of(f"ldp-fl-fmnist-{noisy}")


def behind(epsilon: float, clients: int, task: str) -> float:
    return at(epsilon, PRIVUNIT, clients, task) - at(epsilon, NEAREST, clients, task)


def ten_times(epsilon: float) -> float:
    """Return what PrivUnit loses on Covertype with ten times the clients."""
    of = (at(epsilon, PRIVUNIT, clients, "covertype") for clients in (1_000, 10_000))
    return next(of) - next(of)


def of_bits(epsilon: float, task: str) -> list[float]:
    return span(at(epsilon, each, task=task) for each in BITS)


SAID: list[tuple[str, str, Callable[[], list[float]]]] = [
    (
        REPRODUCTION,
        "the noise-free twin is {:.1f} points below the paper's, and the noise costs {:.1f} more",
        lambda: [62.55 - of("fedavg-cifar10"), of("fedavg-cifar10") - of("ldp-fl-cifar10")],
    ),
    (
        REPRODUCTION,
        "LDP-FL stands still from round 8 on, the twin gains {:.1f} points from there.",
        lambda: [after("fedavg-cifar10", 15) - after("fedavg-cifar10", 8)],
    ),
    (
        REPRODUCTION,
        "the noise costs {:.1f}, {:.1f}, {:.1f} and {:.1f} points with 50, 100, 200 and 500",
        lambda: [
            of(f"fedavg-mnist{clients}") - of(f"ldp-fl-mnist{clients}")
            for clients in ("-fig3-n50", "", "-fig3-n200", "-fig3-n500")
        ],
    ),
    (
        REPRODUCTION,
        "nothing changes from ε 3 on ({:.1f} to {:.1f} in four runs",
        lambda: span(of(f"ldp-fl-fmnist-{row}") for row in FAR),
    ),
    (
        REPRODUCTION,
        "twin from {:.2f} points below the paper's to {:.2f}, and LDP-FL from {:.2f} to {:.2f}.",
        lambda: [
            87.58 - of("fedavg-fmnist"),
            87.58 - of(f"fedavg-fmnist-{BOTH}"),
            87.54 - of("ldp-fl-fmnist-table1-adaptive-eps5"),
            87.54 - of(f"ldp-fl-fmnist-{BOTH}"),
        ],
    ),
    (
        REPRODUCTION,
        "noise, which costs {:.1f} to {:.1f} points in these rows",
        lambda: span(noise_on_fmnist(changed) for changed in GAPS),
    ),
    (
        REPRODUCTION,
        "with half of it, as on MNIST, LDP-FL has {:.1f} points less",
        lambda: [of("ldp-fl-fmnist-table1-fixed-eps5") - of("ldp-fl-fmnist-gap-half-range")],
    ),
    (
        REPRODUCTION,
        "With c = 200, as for MNIST, (A) of LMH is, too, and (B) {:.0f} points above it",
        lambda: [
            of("personalized-fmnist-fig3-clip200-lmh-b")
            - of("personalized-fmnist-fig3-clip200-lmh-a")
        ],
    ),
    (
        REPRODUCTION,
        "is not better than (A) on MNIST ({:.1f} points worse)",
        lambda: [
            statistics.mean(
                of(f"personalized-mnist-fig5-{mix}-a") - of(f"personalized-mnist-fig5-{mix}-c")
                for mix in ("lmh", "lh")
            )
        ],
    ),
    (
        REPRODUCTION,
        "{:.0f} to {:.0f} % whatever the budget",
        lambda: span(of(f"personalized-mnist-fig2-bytes-{curve}") for curve in CURVES),
    ),
    (
        REPRODUCTION,
        "with 3,000, one round has {:.0f} %, and five rounds have {:.0f} %",
        lambda: [of("personalized-sound-mnist"), of("personalized-sound-mnist-rounds5")],
    ),
    (
        REPRODUCTION,
        "here 10 and 5 are {:.1f} and {:.1f} points below no noise, 1 and 0.5 {:.1f} and {:.1f}.",
        lambda: [
            of("fedavg-mnist-fig5") - of(f"nbafl-mnist-fig5-eps{epsilon}")
            for epsilon in ("10", "5", "1", "0.5")
        ],
    ),
    (
        REPRODUCTION,
        "clipped to C = 5, {:.0f} points are lost at ε 10",
        lambda: [of("fedavg-mnist-fig5") - of("nbafl-mnist-tried-weights-eps10")],
    ),
    (
        REPRODUCTION,
        "From round 20 on Fashion-MNIST's row gains {:.1f} points.",
        lambda: [after("ldpfl-fmnist-short", 80) - after("ldpfl-fmnist-short", 20)],
    ),
    (
        REPRODUCTION,
        "{:.1f} and {:.1f} against {:.1f} and {:.1f} on MNIST, {:.1f} against 81.6",
        lambda: [
            *(of(f"ldpfl-mnist-{run}") for run in ("fig2", "fig2-short")),
            *(of(f"ldpfl-{run}") for run in ("mnist", "mnist-short", "fmnist-fig6a-short")),
        ],
    ),
    (
        REPRODUCTION,
        "better here than where clients are alike ({:.1f}), and than FedAvg",
        lambda: [of("ldpfl-fmnist-short")],
    ),
    (
        REPRODUCTION,
        "the sound variant has about {:.0f} %, and at 8 about {:.1f} % (idealised) or {:.0f} %",
        lambda: [
            of(f"ldpfl-sound-fmnist-{row}") for row in ("nearest-eps0.5", "eps8", "nearest-eps8")
        ],
    ),
    (
        README,
        "With 100 it costs {:.0f} to {:.0f} at ε 4, and half of the accuracy at ε 1, on pixels.",
        lambda: span(without_noise(100) - at(4.0, each, 100) for each in TRUSTED),
    ),
    (
        STUDY,
        "it costs {:.1f} points on MNIST's pixels at ε 1 and {:.1f} at ε 4, {:.1f} and {:.1f} on "
        "oriented gradients, and {:.1f} and {:.1f} on Covertype.",
        lambda: [
            lost(epsilon, task=task)
            for task in ("mnist", "mnist-gradients", "covertype")
            for epsilon in (1.0, 4.0)
        ],
    ),
    (
        STUDY,
        "with 100, 1,000 and 10,000 it is {:.0f}, {:.0f} and {:.0f} % on MNIST, and {:.0f}, "
        "{:.0f} and {:.0f} % on Covertype.",
        lambda: [
            without_noise(clients, task)
            for task in ("mnist", "covertype")
            for clients in (100, 1_000, 10_000)
        ],
    ),
    (
        STUDY,
        "at ε 1, 4 and 16, {:.0f}, {:.0f} and {:.0f} % are left on pixels with 1,000 clients, "
        "where {:.0f} are had without noise, and {:.0f}, {:.0f} and {:.0f} with 100.",
        lambda: [
            *(at(epsilon, PRIVUNIT) for epsilon in (1.0, 4.0, 16.0)),
            without_noise(),
            *(at(epsilon, PRIVUNIT, 100) for epsilon in (1.0, 4.0, 16.0)),
        ],
    ),
    (
        STUDY,
        "{:.0f}, {:.0f} and {:.0f} % of {:.0f} with 100 clients, and {:.0f}, {:.0f} and {:.0f} % "
        "of {:.0f} with 1,000",
        lambda: [
            value
            for clients in (100, 1_000)
            for value in (
                *(at(epsilon, PRIVUNIT, clients, "covertype") for epsilon in (1.0, 4.0, 16.0)),
                without_noise(clients, "covertype"),
            )
        ],
    ),
    (
        STUDY,
        "at ε 4, 10,000 clients have {:.0f} % on MNIST's pixels and {:.0f} % on oriented "
        "gradients, where 1,000 have {:.0f} and {:.0f}.",
        lambda: [
            at(4.0, PRIVUNIT, clients, task)
            for clients in (10_000, 1_000)
            for task in ("mnist", "mnist-gradients")
        ],
    ),
    (
        STUDY,
        "On Covertype they have {:.0f} to {:.0f} points less up to ε 4",
        lambda: span(ten_times(epsilon) for epsilon in (1.0, 2.0, 4.0)),
    ),
    (
        STUDY,
        "behind PrivUnit by {:.0f} to {:.0f} points at ε 4 on pixels and on Covertype with up to "
        "1,000 clients, by up to {:.0f} with 100 clients on pixels",
        lambda: [
            *span(
                behind(4.0, clients, task)
                for task in ("mnist", "covertype")
                for clients in (100, 1_000)
            ),
            max(behind(epsilon, 100, "mnist") for epsilon in EPSILONS),
        ],
    ),
    (
        STUDY,
        "at ε 1 on Covertype with 100 ({:.0f} to {:.0f})",
        lambda: [at(1.0, each, 100, "covertype") for each in (NEAREST, PRIVUNIT)],
    ),
    (
        STUDY,
        "on oriented gradients it has {:.0f} % at ε 4 with 10,000, for {:.0f} with 1,000.",
        lambda: [at(4.0, GAUSSIAN, clients, "mnist-gradients") for clients in (10_000, 1_000)],
    ),
    (
        STUDY,
        "bring {:.0f} points at ε 4 with 1,000 clients, more than four times the ε does without "
        "them, and leave {:.0f} % at ε 16, {:.0f} below what they have without noise; with 100 "
        "clients they bring {:.0f} points at ε 4, where four times the ε brings {:.0f}.",
        lambda: [
            at(4.0, PRIVUNIT, task="mnist-gradients") - at(4.0, PRIVUNIT),
            at(16.0, PRIVUNIT, task="mnist-gradients"),
            without_noise(task="mnist-gradients") - at(16.0, PRIVUNIT, task="mnist-gradients"),
            at(4.0, PRIVUNIT, 100, "mnist-gradients") - at(4.0, PRIVUNIT, 100),
            at(16.0, PRIVUNIT, 100) - at(4.0, PRIVUNIT, 100),
        ],
    ),
    (
        STUDY,
        "bring it none at ε 4 ({:.0f} %) and cost it {:.0f} at ε 1, and bring `nearest_direction` "
        "{:.0f} at ε 4, nothing clear elsewhere, and Gaussian noise {:.0f} at ε 4.",
        lambda: [
            at(4.0, PRIVUNIT, task="mnist-convolutions"),
            at(1.0, PRIVUNIT) - at(1.0, PRIVUNIT, task="mnist-convolutions"),
            *(
                at(4.0, each, task="mnist-convolutions") - at(4.0, each)
                for each in (NEAREST, GAUSSIAN)
            ),
        ],
    ),
    (
        STUDY,
        "with 1,000 clients {:.0f} to {:.0f} % on MNIST's pixels, {:.0f} to {:.0f} % on oriented "
        "gradients, and {:.0f} to {:.0f} % on Covertype, below its most frequent class; at ε 16 "
        "they have {:.0f} to {:.0f} %, {:.0f} to {:.0f} %, and {:.0f} to {:.0f} %. The same bits "
        "in a secure sum have {:.1f} % and {:.1f} % at ε 4",
        lambda: [
            *(
                value
                for epsilon in (4.0, 16.0)
                for task in ("mnist", "mnist-gradients", "covertype")
                for value in of_bits(epsilon, task)
            ),
            *(at(4.0, IN_A_SUM, task=task) for task in ("mnist", "covertype")),
        ],
    ),
    (
        STUDY,
        "with 100 they are {:.0f} to {:.0f} points behind Gaussian noise in the sum on pixels, "
        "and {:.0f} to {:.0f} on oriented gradients.",
        lambda: [
            value
            for task in ("mnist", "mnist-gradients")
            for value in span(
                at(epsilon, "distributed_gaussian", 100, task) - at(epsilon, IN_A_SUM, 100, task)
                for epsilon in EPSILONS
            )
        ],
    ),
]


@pytest.mark.parametrize(
    ("page", "template", "values"), SAID, ids=[template[:40] for _, template, _ in SAID]
)
def test_a_sentence_has_the_numbers_of_the_results(
    page: str, template: str, values: Callable[[], list[float]]
) -> None:
    assert template.format(*values()) in text(page)


def test_what_ldp_fl_has_on_mnist_and_what_is_proven(tmp_path: Path) -> None:
    epsilon, *_ = proven(find_recipe("ldp-fl-mnist").config, tmp_path)
    assert epsilon is not None
    assert f"{of('ldp-fl-mnist'):.0f} % accuracy" in text(README)
    assert text(README).count(f"{math.ceil(epsilon):,}") == 2


@pytest.mark.parametrize(
    ("peer", "clients", "cores", "said"),
    [
        ("plain", 10_000, 1, r"10,000 clients takes \*\*([\d.]+) times\*\* less CPU time"),
        ("pfl", 10_000, 1, r"and ([\d.]+) times less than pfl-research"),
        ("flower", 1_000, 2, r"1,000 clients \*\*([\d.]+) times\*\* less than Flower's"),
    ],
)
def test_how_many_times_faster_a_round_is(peer: str, clients: int, cores: int, said: str) -> None:
    rows = [
        json.loads(line)
        for line in (RESULTS / "peers-2026-11-22.jsonl").read_text(encoding="utf-8").splitlines()
    ]

    def seconds(framework: str, cores: int) -> float:
        wanted = (framework, f"many-{clients}", cores)
        return statistics.median(
            row["cpu_seconds_per_round"]
            for row in rows
            if (row["framework"], row["workload"], row["cores"]) == wanted
        )

    ratio = seconds(peer, cores) / seconds("fedldp", 1)
    found = re.search(said, text(README))
    assert found is not None
    assert found[1] == (f"{ratio:.1f}" if ratio < 10 else f"{ratio:.0f}")


def test_the_memory_of_a_million_clients() -> None:
    speed = (RESULTS / "2026-11-22-speed.md").read_text(encoding="utf-8")
    measured = re.search(r"^\| 1,000,000 \| (\d+) \|", speed, re.M)
    assert measured is not None
    assert f"A million clients fit into {measured[1]} MiB" in text(README)
