"""A label revealed beside a private direction is found, and the correct report passes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import planted_labels as planted
import pytest
from planted import changed

from fedldp.audit.efforts import QUICK
from fedldp.audit.plans import planned_games
from fedldp.audit.playing import play
from fedldp.audit.systems import SystemGame
from fedldp.simulation.plan import problem_of

FEW = replace(QUICK, system_explore=40)


def played(config: Any) -> Any:
    """Return what the game about one report finds in the small setting."""
    asked = [
        each
        for each in planned_games(config, problem_of(config, None), FEW)
        if isinstance(each, SystemGame)
        and each.lines[0].setting.startswith("small")
        and (each.lines[0].unit, each.suffix) == ("client-round", "")
    ]
    return play("", asked[:1], confidence=0.999, trials=300, seed=0)


@pytest.mark.slow
def test_a_label_in_clear_is_found() -> None:
    found = played(changed(planted.RightConfig, chosen=planted.LabelInClear)(**planted.settings()))
    assert found.verdict == "bug"
    assert found.rows[0].lower > 2 > found.rows[0].proven


@pytest.mark.slow
def test_the_correct_report_passes() -> None:
    assert played(planted.RightConfig(**planted.settings())).verdict == "ok"
