"""What the study's conclusion says in numbers is what the committed results have."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from study_results import (
    EPSILONS,
    GAUSSIAN,
    IN_A_SUM,
    NEAREST,
    PRIVUNIT,
    TRUSTED,
    at,
    lost,
    span,
    without_noise,
)

PAGE = Path(__file__).parents[2] / "docs" / "study.md"
BITS = (
    "ldp_fl, two_point",
    "ldp_fl, two_point_l1",
    "ldp_fl, sign",
    "personalized_sound, signs",
    "personalized, dp-sign",
)


def behind(epsilon: float, clients: int, task: str) -> float:
    return at(epsilon, PRIVUNIT, clients, task) - at(epsilon, NEAREST, clients, task)


def ten_times(epsilon: float) -> float:
    """Return what PrivUnit loses on Covertype with ten times the clients."""
    of = (at(epsilon, PRIVUNIT, clients, "covertype") for clients in (1_000, 10_000))
    return next(of) - next(of)


def by_convolutions(contestant: str, epsilon: float) -> float:
    """Return what random convolutions bring with 10,000 clients."""
    of = (at(epsilon, contestant, 10_000, task) for task in ("mnist-convolutions", "mnist"))
    return next(of) - next(of)


def behind_gaussian(epsilon: float, task: str) -> float:
    """Return what bits in a sum lack with 100 clients."""
    return at(epsilon, "distributed_gaussian", 100, task) - at(epsilon, IN_A_SUM, 100, task)


def of_bits(epsilon: float, task: str) -> list[float]:
    return span(at(epsilon, each, task=task) for each in BITS)


SAID: list[tuple[str, Callable[[], list[float]]]] = [
    (
        "it costs {:.1f} points on MNIST's pixels at ε 1 and {:.1f} at ε 4, {:.1f} and {:.1f} on "
        "oriented gradients, {:.1f} and {:.1f} on random convolutions, and {:.1f} and {:.1f} on "
        "Covertype.",
        lambda: [
            lost(epsilon, task=task)
            for task in ("mnist", "mnist-gradients", "mnist-convolutions", "covertype")
            for epsilon in (1.0, 4.0)
        ],
    ),
    (
        "with 100, 1,000 and 10,000 it is {:.0f}, {:.0f} and {:.0f} % on MNIST's pixels, and "
        "{:.0f}, {:.0f} and {:.0f} % on Covertype.",
        lambda: [
            without_noise(clients, task)
            for task in ("mnist", "covertype")
            for clients in (100, 1_000, 10_000)
        ],
    ),
    (
        "at ε 1, 4 and 16 accuracy is {:.0f}, {:.0f} and {:.0f} % on pixels with 1,000 clients, "
        "where {:.0f} are had without noise, and {:.0f}, {:.0f} and {:.0f} with 100.",
        lambda: [
            *(at(epsilon, PRIVUNIT) for epsilon in (1.0, 4.0, 16.0)),
            without_noise(),
            *(at(epsilon, PRIVUNIT, 100) for epsilon in (1.0, 4.0, 16.0)),
        ],
    ),
    (
        "{:.0f}, {:.0f} and {:.0f} % with 100 clients, {:.0f} without noise, and {:.0f}, {:.0f} "
        "and {:.0f} % with 1,000, {:.0f} without noise",
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
        "on pixels:** at ε 1, 4 and 16 it has {:.0f}, {:.0f} and {:.0f} %. On oriented gradients "
        "it has {:.0f}, {:.0f} and {:.0f} %, where 1,000 clients have {:.0f}, {:.0f} and {:.0f}",
        lambda: [
            at(epsilon, PRIVUNIT, clients, task)
            for task, clients in (
                ("mnist", 10_000),
                ("mnist-gradients", 10_000),
                ("mnist-gradients", 1_000),
            )
            for epsilon in (1.0, 4.0, 16.0)
        ],
    ),
    (
        "On Covertype it has {:.0f} and {:.0f} points less at ε 2 and 4",
        lambda: [ten_times(epsilon) for epsilon in (2.0, 4.0)],
    ),
    (
        "behind PrivUnit by {:.0f} to {:.0f} points at ε 4 on pixels and on Covertype with up to "
        "1,000 clients, and by {:.0f} at most, with 100 clients on pixels.",
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
        "Plain Gaussian noise has {:.0f} % at ε 4 on pixels with both, but on oriented gradients "
        "{:.0f} % with 10,000, for {:.0f} with 1,000",
        lambda: [
            at(4.0, GAUSSIAN, 10_000),
            *(at(4.0, GAUSSIAN, clients, "mnist-gradients") for clients in (10_000, 1_000)),
        ],
    ),
    (
        "Plain Gaussian noise has {:.0f} % at ε 4 on pixels with both",
        lambda: [at(4.0, GAUSSIAN, 1_000)],
    ),
    (
        "give PrivUnit {:.0f} points more at ε 4 with 1,000 clients, more than ε 16 does on "
        "pixels ({:.0f}), and leave {:.0f} % at ε 16, {:.0f} below what they have without noise; "
        "with 100 clients they give {:.0f} points at ε 4, where ε 16 gives {:.0f}.",
        lambda: [
            at(4.0, PRIVUNIT, task="mnist-gradients") - at(4.0, PRIVUNIT),
            at(16.0, PRIVUNIT) - at(4.0, PRIVUNIT),
            at(16.0, PRIVUNIT, task="mnist-gradients"),
            without_noise(task="mnist-gradients") - at(16.0, PRIVUNIT, task="mnist-gradients"),
            at(4.0, PRIVUNIT, 100, "mnist-gradients") - at(4.0, PRIVUNIT, 100),
            at(16.0, PRIVUNIT, 100) - at(4.0, PRIVUNIT, 100),
        ],
    ),
    (
        "with 1,000 clients give PrivUnit none at ε 4 ({:.0f} %) and cost it {:.0f} at ε 1; they "
        "give `nearest_direction` {:.0f} at ε 4, nothing clear elsewhere, and Gaussian noise "
        "{:.0f} at ε 4 and {:.0f} at ε 8 and 16.",
        lambda: [
            at(4.0, PRIVUNIT, task="mnist-convolutions"),
            at(1.0, PRIVUNIT) - at(1.0, PRIVUNIT, task="mnist-convolutions"),
            *(
                at(epsilon, each, task="mnist-convolutions") - at(epsilon, each)
                for each, epsilon in ((NEAREST, 4.0), (GAUSSIAN, 4.0), (GAUSSIAN, 8.0))
            ),
        ],
    ),
    (
        "with 1,000 clients {:.0f} to {:.0f} % on MNIST's pixels, {:.0f} to {:.0f} % on oriented "
        "gradients, and {:.0f} to {:.0f} % on Covertype, below its most frequent class; at ε 16 "
        "they have {:.0f} to {:.0f} %, {:.0f} to {:.0f} %, and {:.0f} to {:.0f} %. The same bits "
        "in a secure sum have {:.1f} % on pixels and {:.1f} % on Covertype at ε 4",
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
        "with 100 they are {:.0f} to {:.0f} points behind Gaussian noise in the sum on pixels, "
        "and up to {:.0f} on oriented gradients, and with",
        lambda: [
            *span(behind_gaussian(epsilon, "mnist") for epsilon in EPSILONS),
            max(behind_gaussian(epsilon, "mnist-gradients") for epsilon in EPSILONS),
        ],
    ),
    (
        "on random convolutions with 100 clients at ε 2, {:.0f} and {:.0f} %, and seeds",
        lambda: [at(2.0, each, 100, "mnist-convolutions") for each in TRUSTED],
    ),
    (
        "with 100 it is {:.0f} behind at ε 2 and {:.0f} at ε 8, and level elsewhere.",
        lambda: [behind(epsilon, 100, "mnist-convolutions") for epsilon in (2.0, 8.0)],
    ),
    (
        "at ε 4 with 100, Gaussian noise in a sum has {:.0f} % on pixels, {:.0f} on oriented "
        "gradients, and {:.0f} on random convolutions.",
        lambda: [
            at(4.0, "distributed_gaussian", 100, task)
            for task in ("mnist", "mnist-gradients", "mnist-convolutions")
        ],
    ),
    (
        "of these three only `nearest_direction` gains clearly, {:.0f} at ε 8.",
        lambda: [at(8.0, NEAREST, 100, "mnist-convolutions") - at(8.0, NEAREST, 100)],
    ),
    (
        "With 10,000 it is ahead by {:.0f} and {:.0f} at ε 1 and 2 on pixels, and by {:.0f} and "
        "{:.0f} at ε 2 and 8 on oriented gradients",
        lambda: [
            -behind(epsilon, 10_000, task)
            for task, epsilons in (("mnist", (1.0, 2.0)), ("mnist-gradients", (2.0, 8.0)))
            for epsilon in epsilons
        ],
    ),
    (
        "With 10,000 they give PrivUnit {:.0f} at ε 1 and cost it {:.0f} at ε 4; they give "
        "Gaussian noise {:.0f}, {:.0f} and {:.0f} at ε 2, 4 and 8, and",
        lambda: [
            by_convolutions(PRIVUNIT, 1.0),
            -by_convolutions(PRIVUNIT, 4.0),
            *(by_convolutions(GAUSSIAN, epsilon) for epsilon in (2.0, 4.0, 8.0)),
        ],
    ),
    (
        "With 10,000 clients on random convolutions it has {:.0f} %, and FedAvg without noise "
        "{:.0f}:",
        lambda: [
            at(4.0, "distributed_gaussian", 10_000, "mnist-convolutions"),
            without_noise(10_000, "mnist-convolutions"),
        ],
    ),
    (
        "the CNN with 1,000 clients has {:.0f} % without noise, where logistic regression has "
        "{:.0f}.",
        lambda: [without_noise(task="mnist-cnn"), without_noise()],
    ),
    (
        "who trusts a sum or the server has {:.0f} to {:.0f} % at ε 1, {:.0f} to {:.0f} at ε 4, "
        "and {:.0f} at ε 16",
        lambda: [
            *span(at(1.0, each, task="mnist-cnn") for each in TRUSTED),
            *span(at(4.0, each, task="mnist-cnn") for each in TRUSTED),
            at(16.0, TRUSTED[0], task="mnist-cnn"),
        ],
    ),
    (
        "and PrivUnit has {:.0f} and {:.0f} % at ε 4 and 16;",
        lambda: [at(epsilon, PRIVUNIT, task="mnist-cnn") for epsilon in (4.0, 16.0)],
    ),
]


@pytest.mark.parametrize(("template", "values"), SAID, ids=[template[:40] for template, _ in SAID])
def test_a_sentence_has_the_numbers_of_the_results(
    template: str, values: Callable[[], list[float]]
) -> None:
    assert template.format(*values()) in " ".join(PAGE.read_text(encoding="utf-8").split())
