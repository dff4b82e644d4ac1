"""The pages of an audit have all of its rows, and the broken claims apart."""

from __future__ import annotations

from typing import Any

from benchmarks import audit_table


def row(**more: Any) -> dict[str, Any]:
    return {
        "unit": "record", "size": 1234, "delta": 1e-5, "claimed": 1.0, "proven": None,
        "lower": 2.0, "trials": 4000, "note": "alone: a bug from 3", "verdict": "claim-broken",
    } | more  # fmt: skip


def test_each_row_stands_on_its_page_and_a_broken_claim_on_another() -> None:
    of_system = row(system="nbafl", setting="as given", adversary="server", attack="label swapped")
    of_mechanism = row(mechanism="Gaussian(sigma=1.23456789)", verdict="ok", proven=1.5)
    audit = {"rows": [of_system, of_mechanism], "seed": 0, "confidence": 0.999, "commit": "abc"}
    pages = {path.name: text for path, text in audit_table.pages(audit).items()}
    assert "| `Gaussian(sigma=1.235)` | record | 1,234 | 1e-05 |" in pages["audit_mechanisms.md"]
    assert "| **claim-broken** | label swapped |" in pages["audit_systems.md"]
    assert "| `nbafl` | as given | record |" in pages["broken_claims.md"]
    assert "Gaussian" not in pages["broken_claims.md"].partition("## Why")[0]
    assert "1 `claim-broken`" in pages["audit_mechanisms.md"]
