"""The pages of an audit have all of its rows, working links, and few columns."""

from __future__ import annotations

import re
from typing import Any

from benchmarks import audit_table


def row(**more: Any) -> dict[str, Any]:
    return {
        "unit": "record", "size": 1234, "delta": 1e-5, "claimed": 1.0, "proven": None,
        "lower": 2.0, "trials": 4000, "verdict": "claim-broken",
        "note": "unproven: no epsilon to compare with; would show a bug from epsilon 3.1416",
    } | more  # fmt: skip


def of_system(**more: Any) -> dict[str, Any]:
    return row(
        system="nbafl", setting="as configured", adversary="server", attack="label swapped", **more
    )


def of_mechanism(**more: Any) -> dict[str, Any]:
    return row(mechanism="Gaussian(clip=1.0, sigma=1.23456789)", adversary="server", **more)


def pages(*rows: dict[str, Any]) -> dict[str, str]:
    audit = {"rows": list(rows), "seed": 0, "confidence": 0.999, "commit": "abc"}
    return audit_table.pages(audit)


def test_each_row_is_on_its_page_and_a_broken_claim_on_another() -> None:
    made = pages(of_system(), of_mechanism(verdict="ok", proven=1.5, lower=0.9996))
    assert "| d 1,234 | record, δ 1e-05 | 1 | 1.500 |" in made["audit_report_mechanisms.md"]
    assert "| record, δ 1e-05 | 1 | none | **2.000** |" in made["audit_nbafl.md"]
    broken = made["broken_claims.md"].partition("## Why")[0]
    assert "| [`nbafl`](audit_nbafl.md), as configured | record" in broken
    assert "Gaussian" not in broken


def test_the_pages_of_the_kept_audits_can_be_read_on_a_phone() -> None:
    for text in audit_table.all_pages().values():
        assert text.count("\n") < 250
        for line in re.findall(r"^\|.*\|$", text, re.MULTILINE):
            assert line.count(" | ") <= 5, "too wide for a phone"
