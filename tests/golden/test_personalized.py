"""Short runs of both personalised systems with recorded numbers; see test_short_runs."""

from __future__ import annotations

from typing import Any

import pytest
from test_short_runs import digest, first_round

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
            {"perturbation": "sign", "selects_first": True},
            "8fabe07158c5a969b5f83ba5078242a7",
        ),
    ],
)
def test_the_reports_for_given_weights(name: str, settings: dict[str, Any], expected: str) -> None:
    reports = first_round(name, **{**MIX, **settings})
    assert [report.client for report in reports] == [0, 1, 2]
    assert digest(reports) == expected
