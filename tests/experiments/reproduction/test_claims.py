"""The papers' claims: each has a verdict, and a claim that does not hold has an explanation."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from importlib import import_module
from inspect import isfunction
from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from benchmarks import linkage
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.errors import ConfigError
from fedldp.core.registry import PAPERS as ROOM
from fedldp.core.registry import paper_folders
from fedldp.experiments.identity import data_digests, family_digest
from fedldp.experiments.reproduction.claims import (
    NO_CAUSE,
    RULES,
    Claim,
    Judged,
    claim_of,
    claims_of,
    judged,
)
from fedldp.experiments.reproduction.comparison import Verdict, compare, known
from fedldp.experiments.reproduction.pages import committed as committed_rows
from fedldp.experiments.reproduction.pages import markdown, proven_table, remaining, totals
from fedldp.experiments.reproduction.results import Measurement, Measurements, published_of
from fedldp.experiments.reproduction.targets import targets

PAPERS = sorted(Path(file).parent.name for file in paper_folders("claims.toml"))
CLAIMS = [claim for paper in PAPERS for claim in claims_of(paper)]


@pytest.mark.slow
def test_every_claim_that_does_not_hold_has_a_cause_or_says_that_none_is_known() -> None:
    found = [judged(claim) for claim in CLAIMS]
    for claim, each in zip(CLAIMS, found, strict=True):
        assert each.why != NO_CAUSE, (claim.place, claim.says)
        assert (each.why == "") == (each.verdict == "agrees"), claim.says
    assert len(CLAIMS) > 90
    verdicts = [each.verdict for each in found]
    for verdict in ("agrees", "explained", "differs", "not comparable", "not measured"):
        assert verdict in verdicts


def test_a_cause_begins_with_the_cause_and_not_with_a_reference_to_another_row() -> None:
    """Its first words decide the verdict, and a reference would say "explained" whatever it is."""
    causes = [claim.cause for claim in CLAIMS if claim.cause] + [
        each.text for each in known().values()
    ]
    assert len(causes) > 60
    assert [
        each for each in causes if each.lower().startswith(("see ", "as ", "for the same"))
    ] == []


@pytest.mark.slow
def test_totals_count_each_cell_and_each_claim_of_a_paper_that_is_not_ours() -> None:
    """Feature priority: every figure is a curve, and two of its claims are ours."""
    paper = "Talaei, Izadi 2024"
    rows = [
        row
        for target in targets().values()
        if target.paper == paper
        for row in compare(target, Measurements(), prove=False)
    ]
    claims, cells = totals({paper: rows, "Nobody 2026": rows})
    says = [claim.says for claim in claims_of("priority")]
    assert claims["all"] == len(says) - sum("(ours)" in each for each in says) == len(says) - 2
    assert cells["all"] == cells["no number published"] + cells["not measured"] == len(rows)
    for row in (claims, cells):
        assert row["all"] == sum(n for name, n in row.items() if name in get_args(Verdict))


def test_a_claims_cells_have_a_source_and_a_place_for_their_numbers() -> None:
    for claim in CLAIMS:
        assert all(find_recipe(name.partition("@")[0]).source for name in claim.cells), claim.says
        assert claim.ours.count("{") or not claim.cells, claim.says


def test_a_claim_refers_only_to_what_exists() -> None:
    for claim in CLAIMS:
        assert claim.known is None or claim.known in known(), claim.says
        assert claim.cause is None or claim.known is None, claim.says
        assert all(find_recipe(recipe) for recipe, _ in claim.epsilon), claim.says
        places = [place for pair in claim.minus for group in pair for place in np.ravel(group)]
        assert all(0 <= place < len(claim.cells) for place in places), claim.says


def test_each_function_of_a_paper_is_used_by_a_claim() -> None:
    for paper in PAPERS:
        made = vars(import_module(f"{ROOM}.{paper}.claims"))
        functions = {name for name, each in made.items() if isfunction(each) and name[0] != "_"}
        own = {name for name in functions if made[name].__module__ == f"{ROOM}.{paper}.claims"}
        assert own == {
            claim.compute[0] for claim in CLAIMS if claim.paper == paper and claim.compute
        }


@pytest.mark.parametrize(
    ("rule", "numbers", "needs", "holds"),
    [
        ("near", (1.0, 1.9), {"to": 1, "within": 1}, True),
        ("near", (1.0, 2.1), {"to": 1, "within": 1}, False),
        ("near", (1.0, 2.1), {"to": [1, 2], "within": [0, 0.2]}, True),
        ("between", (1.0, 2.0), {"least": 1, "most": 2}, True),
        ("between", (1.0, 2.0), {"least": [1, 2.1]}, False),
        ("between", (1.0, 2.0), {"most": 1.9}, False),
        ("rising", (1.0, 2.0, 3.0), {}, True),
        ("rising", (1.0, 2.0, 2.0), {}, False),
        ("rising", (1.0, 2.0, 0.0, 0.1), {"by": 2}, True),
        ("rising", (1.0, 2.0), {"start": 1}, False),
        ("outweighs", (-5.0, 2.0), {"times": 2}, True),
        ("outweighs", (5.0, -3.0), {"times": 2}, False),
        ("outweighs", (5.0, 2.0, 3.0, 2.0), {"times": 2, "by": 2}, False),
        ("finite", (1.0, 2.0), {}, True),
        ("finite", (1.0, math.inf), {}, False),
        ("always", (math.inf,), {}, True),
    ],
)
def test_a_rule_judges_every_number(
    rule: str, numbers: tuple[float, ...], needs: dict[str, Any], holds: bool
) -> None:
    assert RULES[rule](Judged(np.array(numbers), np.zeros(len(numbers))), **needs) is holds


@pytest.mark.parametrize(
    "change",
    [
        {"rule": {"name": "nearby"}},
        {"rule": {"name": "near", "to": 1}},
        {"rule": {"name": "finite", "most": 1}},
        {"rule": None},
        {"cost": "a day"},
        {"says": None},
        {"verdict": "agrees"},
    ],
    ids=str,
)
def test_a_claim_that_cannot_be_judged_is_refused(change: dict[str, Any]) -> None:
    table = {"place": "5", "says": "ninety", "rule": {"name": "finite"}}
    assert Claim(paper="ldp_fl", **table).named_rule == ("finite", {})
    with pytest.raises(ConfigError, match=r"^claims.toml of ldp_fl: the claim "):
        claim_of("ldp_fl", table | change)


def test_shares_of_linked_messages_agree_with_the_linkage_page() -> None:
    """The page's first table is about any of 100 clients, for T = 0.1, 1, 10, 100 and 1000 s."""
    table = linkage.delay_table(linkage.read(linkage.RESULTS), 100, "any")
    shares = {
        line.split("|")[1].strip(): re.findall(r"([\d.]+)\*{0,2} \(", line)
        for line in table.strip().splitlines()
    }
    said = " ".join(claim.ours for claim in claims_of("ldp_fl") if "linkage.md" in claim.ours)
    exact, printed, second, predicted = (
        shares[clocks]
        for clocks in (
            "as the paper assumes",
            "Algorithm 3 as printed: nobody waits",
            "clocks off by 1 s",
            "own times predicted to 10 %",
        )
    )
    assert f"{exact[0]} % of messages are linked at T = 0.1 s" in said
    assert f"{second[0]} and {second[3]} % of messages are linked; {predicted[0]} %" in said
    assert f"{printed[0]} and {printed[3]} % of messages are linked" in said


def published(name: str, mean: float, deviation: float | None, seeds: int) -> Measurement:
    config = find_recipe(name).config
    return Measurement(
        digest=family_digest(config, data_digests(config)[0]), rounds=config.rounds,
        seeds=list(range(seeds)), mean=mean, deviation=deviation, after={}, device="cpu",
        hardware="", date="2026-01-01", published=True,
    )  # fmt: skip


@pytest.fixture
def committed(monkeypatch: pytest.MonkeyPatch) -> dict[str, Measurement]:
    found: dict[str, Measurement] = {}
    monkeypatch.setattr("fedldp.experiments.reproduction.results.published", lambda: found)
    return found


PAIR = ("ldp-fl-mnist", "fedavg-mnist")


def of_paper(**more: Any) -> Claim:
    return Claim(**{"paper": "ldp_fl", "place": "5", "says": "more", "ours": "{:.1f}"} | more)


def order(name: str, *cells: str, **more: Any) -> Claim:
    """Return the claim that the second of two cells is above the first, or is not."""
    return of_paper(cells=cells, rule={"name": name}, **({"of": [[1, 0]]} | more))


def test_verdicts_follow_from_the_committed_results(committed: dict[str, Any]) -> None:
    claim = of_paper(
        cells=PAIR[:1], ours="{:.1f}", rule={"name": "near", "to": 90, "within": 1}, cause="C"
    )
    assert judged(claim) == ("-", "not measured", "3 CPU minutes")
    committed["a"] = published(PAIR[0], 0.895, None, 1)
    assert judged(claim) == ("89.5", "agrees", "")
    committed["a"] = published(PAIR[0], 0.88, None, 1)
    assert judged(claim).text == "does not: C"
    for cause, verdict, text in (
        ("C", "explained", "does not: C"),
        ("not known: C", "differs", "does not: not known: C"),
        ("our C", "not comparable", "not comparable: our C"),
    ):
        found = judged(claim.model_copy(update={"cause": cause}))
        assert (found.ours, found.verdict, found.text) == ("88.0", verdict, text)


ALONE: tuple[dict[str, Any], ...] = (
    {}, {"of": [], "minus": [[1, 0]]}, {"of": [], "minus": [[[1], [0]]]},
)  # fmt: skip
TWICE = ({"of": [], "minus": [[1, 0], [1, 0]], "mean": True}, {"of": [], "minus": [[[1, 1], 0]]})
MEAN = ({"of": [], "minus": [[1, 0], [2, 0]], "mean": True}, {"of": [], "minus": [[[1, 2], 0]]})


@pytest.mark.parametrize(
    ("rule", "forms", "low", "high", "gap", "holds"),
    [
        ("above", ALONE, (None, 1), (None, 1), 0.0101, True),
        ("above", ALONE, (0.02, 3), (0.02, 3), 0.0101, False),  # the standard error is 0.0163
        ("above", ALONE, (0.02, 8), (0.02, 8), 0.0101, True),  # 0.01
        ("above", ALONE, (0.01, 3), (0.01, 3), 0.0101, True),  # 0.008
        ("not_above", ALONE, (0.016, 4), (0.012, 4), 0.0101, False),  # 0.01
        ("not_above", ALONE, (0.016, 4), (0.012, 4), 0.0099, True),
        ("not_above", ALONE, (0.016, 4), (0.012, 4), -0.5, True),
        ("above", TWICE, (None, 1), (0.016, 4), 0.0081, True),  # 0.008, not that of two cells
        ("above", TWICE, (None, 1), (0.016, 4), 0.0079, False),
        ("above", MEAN, (None, 1), (0.016, 4), 0.0058, True),  # 0.0057 for the mean of two
        ("above", MEAN, (None, 1), (0.016, 4), 0.0056, False),
    ],
)
def test_an_order_holds_by_more_than_the_standard_error(
    rule: str, forms: tuple[dict[str, Any], ...], low: tuple[Any, int], high: tuple[Any, int],
    gap: float, holds: bool, committed: dict[str, Any],
) -> None:  # fmt: skip
    third = "ldp-fl-fmnist"
    committed["low"] = published(PAIR[0], 0.4, *low)
    for name in (PAIR[1], third):
        committed[name] = published(name, 0.4 + gap, *high)
    for more in forms:
        assert (judged(order(rule, *PAIR, third, **more)).verdict == "agrees") is holds
    if rule == "above":
        assert judged(order(rule, *PAIR[::-1])).verdict != "agrees"


def test_a_claim_may_be_about_an_earlier_round_or_no_recipe(committed: dict[str, Any]) -> None:
    row = published(PAIR[0], 0.9, None, 1)
    committed["a"] = row.model_copy(update={"after": {5: (0.7, None)}})
    claim = of_paper(cells=(f"{PAIR[0]}@5",), rule={"name": "always"})
    assert judged(claim) == ("70.0", "agrees", "")
    claim = of_paper(cost="3 CPU days")
    assert judged(claim) == ("-", "not measured", "3 CPU days")


def test_a_statement_is_shown_with_its_claim_and_units_without_a_guarantee() -> None:
    lines = proven_table("ldp-fl-mnist-model-shuffling priority-digits").splitlines()
    assert any("**claimed** | | **1** | 0" in line for line in lines)
    assert "| `priority-digits` | client-run | server | none | | |" in lines
    assert all(line.count("|") == 7 for line in lines)


def test_a_cell_has_the_result_of_an_equal_run_with_the_most_seeds(
    committed: dict[str, Measurement],
) -> None:
    """The first ten of 20 rounds are a run of ten rounds, under whatever name."""
    short, long = (find_recipe(name) for name in ("ldp-fl-mnist", "ldp-fl-mnist-fig4-rounds"))
    kept = published(long.name, 0.97, None, 1)
    committed["long"] = kept.model_copy(update={"after": {5: (0.91, None), 10: (0.93, None)}})
    begun = published_of(short)
    assert begun is not None
    assert (begun.mean, begun.rounds, set(begun.after)) == (0.93, 10, {5, 10})
    committed["short"] = published("ldp-fl-mnist-fig3-n100", 0.96, 0.01, 3)
    for recipe, mean, seeds in ((short, 0.96, 3), (long, 0.97, 1)):
        found = published_of(recipe)
        assert found is not None
        assert (found.mean, len(found.seeds)) == (mean, seeds)
    assert published_of(find_recipe("fedavg-mnist")) is None


def test_cells_with_the_same_run_say_so_and_count_once() -> None:
    known = targets()
    rows = committed_rows(known["ldp-fl-fig4"], prove=False)
    (row,) = [row for row in rows if row.recipe == "ldp-fl-mnist-fig4-fr1"]
    assert row.same_run == "ldp-fl-mnist"
    assert "`ldp-fl-mnist-fig4-fr1`, the run of `ldp-fl-mnist`" in markdown([row])
    few = [replace(known[f"ldpfl-fig{n}"], cells=known[f"ldpfl-fig{n}"].cells[:2]) for n in (9, 10)]
    lines = remaining(few).splitlines()
    assert lines[-1].startswith("| every run once | 2 | 0 | 0 |")
    assert [line.split(" | ")[1] for line in lines[2:4]] == ["2", "2"]
    assert lines[-1].split(" | ")[4:] == lines[2].split(" | ")[4:]
