"""The results of games and attacks have the promised JSON keys, in order."""

from __future__ import annotations

import json
from typing import Any

import pytest

from fedldp.audit.results import (
    AttackResult,
    Audit,
    Estimate,
    GameResult,
    Kind,
    Measure,
    Verdict,
    verdict_of_attack,
    worst,
)

ATTACK = (
    "kind name against setting measure result baseline succeeds tpr_at positives negatives roc "
    "more note"
)
KEYS: dict[Kind, tuple[Measure, str]] = {
    "linkage": (
        "links",
        "span evidence attack clocks target clients delay_seconds chunk guessing hits "
        "trials low high confidence verdict advantage",
    ),
    "poisoning": ("accuracy", "system attack share liars clients seed accuracy lost stopped"),
    "influence": ("influence", "system clients most norm amplification"),
    "membership": ("AUC", ATTACK),
    "inversion": ("error", ATTACK),
    "property": ("AUC", ATTACK),
}
OWN: dict[Kind, dict[str, Any]] = {
    "linkage": {
        "channel": "shuffler", "span": "within", "evidence": "time", "clocks": "", "target": "any",
        "clients": 4, "delay_seconds": 1.0, "chunk": 1, "hits": 3,
    },
    "poisoning": {"share": 0.1, "liars": 1, "clients": 4, "seed": 0, "lost": 0.5, "rounds": 2},
    "influence": {"clients": 4, "norm": 2.0, "amplification": None},
    "property": {"accuracy": Estimate.exact(0.5)},
}  # fmt: skip


def result(kind: Kind) -> AttackResult:
    return AttackResult(
        subject="it", kind=kind, attack="all", measure=KEYS[kind][0],
        measured=Estimate(value=0.75, low=0.5, high=1.0), figures=OWN.get(kind, {}),
        confidence=0.99,
    )  # fmt: skip


def bound(**changes: Any) -> GameResult:
    told: dict[str, Any] = {"subject": "it", "size": 1, "unit": "record", "attack": "all"}
    return GameResult(**told | changes)


@pytest.mark.parametrize("kind", KEYS)
def test_the_json_keys_of_attacks_are_a_contract(kind: Kind) -> None:
    found = result(kind).as_json()
    assert list(found) == KEYS[kind][1].split()
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_users_figure_is_not_called_proven() -> None:
    found = bound(proven=1.0, stated_by="mine:Mine").as_json()
    assert (found["proven"], found["stated"], found["stated_by"]) == (None, 1.0, "mine:Mine")
    assert bound(proven=1.0).as_json()["proven"] == 1.0


@pytest.mark.parametrize(
    ("measure", "measured", "verdict"),
    [
        ("AUC", Estimate(value=0.6, low=0.51, high=0.7), "succeeds"),
        ("AUC", Estimate(value=0.6, low=0.5, high=0.7), "fails"),
        ("error", Estimate(value=0.4, low=0.3, high=0.49), "succeeds"),
        ("error", Estimate(value=0.4, low=0.3, high=0.5), "fails"),
        ("AUC", None, "fails"),
    ],
)
def test_an_attack_succeeds_if_its_whole_interval_does(
    measure: Measure, measured: Estimate | None, verdict: Verdict
) -> None:
    assert verdict_of_attack(measure, measured, 0.5) == verdict


def test_an_audit_has_the_worst_verdict_of_its_rows() -> None:
    verdicts: tuple[Verdict, ...] = ("ok", "claim-broken", "bug")
    rows = [bound(verdict=verdict) for verdict in verdicts]
    assert [worst(rows[: n + 1]) for n in range(3)] == ["ok", "claim-broken", "bug"]
    audit = Audit(subject="it", seed=1, confidence=0.9, rows=tuple(rows))
    keys = ["subject", "verdict", "confidence", "seed", "rows"]
    assert list(audit.as_json()) == keys
    assert worst([]) == "ok"
