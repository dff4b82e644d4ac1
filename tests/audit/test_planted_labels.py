"""A label revealed beside a private direction is found, and the correct report passes."""

from __future__ import annotations

from typing import Any

import planted_labels as planted
import pytest
from planted import changed, small_games

from fedldp.audit.playing import play


def played(config: Any) -> Any:
    """Return what the game about one report finds in the small setting."""
    return play("", small_games(config, "client-round")[:1], confidence=0.999, trials=300, seed=0)


@pytest.mark.slow
def test_a_label_in_clear_is_found() -> None:
    found = played(changed(planted.RightConfig, chosen=planted.LabelInClear)(**planted.settings()))
    assert found.verdict == "bug"
    assert found.rows[0].lower > 2 > found.rows[0].proven


@pytest.mark.slow
def test_the_correct_report_passes() -> None:
    assert played(planted.RightConfig(**planted.settings())).verdict == "ok"
