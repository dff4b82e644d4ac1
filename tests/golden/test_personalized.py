"""Short runs of both personalised systems with recorded numbers; see test_short_runs."""

from __future__ import annotations

from typing import Any

import pytest
from test_short_runs import digest, first_round

import fedldp

MIX = {"epsilon": [1.0, 5.0, 10.0], "num_examples": 300, "rounds": 10}


@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("personalized-digits", {"clip": [0.2, 0.3, 200.0]}, "39864882d7039eba06268bb61985d287"),
        (
            "personalized-digits",
            {"perturbation": "sign", "clip": 0.4},
            "87e67a89f7a26fff5a13bc1dbe352122",
        ),
        (
            "personalized-digits",
            {"perturbation": "none", "aggregation": "mean", "epsilon": None},
            "350df5cff8ff7ee112530cd77f50f1e1",
        ),
        (
            "personalized-digits",
            {"perturbation": "bare-sign", "aggregation": "mean", "epsilon": None},
            "8ba2709698fa5063e2c421619dfac67f",
        ),
        ("personalized-sound-digits", {}, "39d95b7333e9eccc8cd4ab8c97b7a0a4"),
        (
            "personalized-sound-digits",
            {"report": "sign", "selects_first": True},
            "8fabe07158c5a969b5f83ba5078242a7",
        ),
    ],
)
def test_the_reports_for_given_weights(name: str, settings: dict[str, Any], expected: str) -> None:
    reports = first_round(name, **{**MIX, **settings})
    assert [report.client for report in reports] == [0, 1, 2]
    assert digest(reports) == expected


SHORT: dict[str, Any] = {"num_clients": 3, "rounds": 3, "epsilon": [1.0, 5.0, 10.0]}


@pytest.mark.slow  # tests/gate has the bytes of such runs
@pytest.mark.parametrize(
    ("name", "settings", "expected"),
    [
        ("personalized-digits", {"aggregation": "mean"}, [0.8917, 0.8833, 0.9]),
        ("personalized-digits", {"aggregation": "weighted"}, [0.9028, 0.9083, 0.9222]),
        ("personalized-digits", {}, [0.9056, 0.9167, 0.9056]),
        (
            "personalized-digits",
            {
                "perturbation": "sign",
                "clip": 4.0,
                "feature_scale": 1.0,
                "partition": "dirichlet:0.5",
            },
            [0.3167, 0.3861, 0.3528],
        ),
        (
            "personalized-digits",
            {"perturbation": "none", "aggregation": "mean", "epsilon": None},
            [0.9028, 0.9306, 0.9278],
        ),
        ("personalized-sound-digits", {"epsilon": 300.0}, [0.55, 0.7611, 0.8111]),
        ("personalized-sound-digits", {"epsilon": 300.0, "report": "sign"}, [0.3, 0.625, 0.7139]),
    ],
)
def test_the_accuracies_of_three_rounds(
    name: str, settings: dict[str, Any], expected: list[float]
) -> None:
    result = fedldp.run(fedldp.recipe(name, **{**SHORT, **settings}))
    assert [r.accuracy for r in result.rounds] == pytest.approx(expected, abs=0.02)
