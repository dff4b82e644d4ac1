"""The text of a statement claims no more than is proven."""

from __future__ import annotations

from typing import Any

import pytest

import fedldp
from fedldp.simulation.plan import plan, problem_of


def planned(recipe: str, **changes: Any) -> dict[str, Any]:
    config = fedldp.recipe(recipe, **changes)
    return plan(config, problem_of(config, None)).privacy


@pytest.mark.parametrize("delta", [1e-3, 1e-9])
def test_the_figure_for_the_client_protected_most_has_its_delta(delta: float) -> None:
    (_, warning) = planned("personalized-sound-digits", delta=delta)["warnings"]
    assert f"(delta {delta!r})" in warning


def test_no_figure_is_called_the_cost_of_a_client_that_sends_nothing() -> None:
    # Two of the three clients send; the third is protected most.
    changes = {"num_clients": 3, "clients_per_round": 2, "rounds": 1}
    warnings = planned("quickstart", epsilon=[1.0, 2.0, 3.0], **changes)["warnings"]
    (warning,) = [each for each in warnings if "the one protected most" in each]
    assert "costs at most epsilon" in warning


def test_the_rounds_that_a_line_assumes_are_enough_for_every_client() -> None:
    # Client 0, with budget 2, is drawn once, and client 1, with budget 1, three times, so the
    # largest cost is 3 d. If client 0 were drawn three times, as "at most 3 rounds" allows, it
    # would cost 6 d.
    changes = {"num_clients": 3, "clients_per_round": 1, "rounds": 6, "seed": 5}
    privacy = planned("quickstart", epsilon=[2.0, 1.0, 1.0], **changes)
    for line in privacy["guarantees"]:
        if line["unit"] == "client-run":
            assert not [a for a in line["assumptions"] if "in at most" in a]
            assert (
                "no client takes part in more rounds than it is drawn for here"
                in (line["assumptions"])
            )
    pure = next(g for g in privacy["guarantees"] if g["unit"] == "client-run")
    assert pure["epsilon"] == 3 * 650
    same = planned("quickstart", epsilon=1.0, **changes)["guarantees"]
    assert all(
        "the client takes part in at most 3 rounds" in line["assumptions"]
        for line in same
        if line["unit"] == "client-run"
    )


def test_secure_aggregation_is_said_to_hide_from_a_server_without_accomplices() -> None:
    # Bonawitz et al. 2017, Theorem 6.3: it hides all but the sum over clients that do not collude.
    (line, _) = planned("secure-aggregation-digits")["guarantees"]
    assert "colludes with no client" in line["method"]
