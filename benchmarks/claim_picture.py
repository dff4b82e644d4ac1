"""Draw what published systems claim beside what is proven, for the README and the home page.

    python -m benchmarks.claim_picture

It writes docs/claim.svg, and in both pages what stands between ``<!-- claim -->`` and its end: the
picture with its words. All figures are of statements that the package makes; nothing is trained.
"""

from __future__ import annotations

import math
import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from fedldp.algorithms.recipes import find_recipe
from fedldp.core.formatting import number
from fedldp.reproduction.results import published
from fedldp.simulation.plan import problem_of, stated_without_shuffler

ROOT = Path(__file__).parents[1]
PICTURE = ROOT / "docs" / "claim.svg"
PAGES = {"README.md": "docs/", "docs/index.md": ""}
"""Pages, and where the pictures and pages of docs are for each."""

PUBLISHED = {
    "LDP-FL": "ldp-fl-mnist",
    "LDPFL": "ldpfl-mnist",
    "Feature priority": "priority-mnist-fig6-least20",
    "Personalised LDP": "personalized-mnist-fig2-low",
    "NbAFL": "nbafl-mnist",
    "CLDP-Fed": "cldp-fed-fmnist",
}
"""Recipes at the papers' settings, by what the system is called."""

OURS = {
    "fedldp: k_closest, once": "composed-mnist-solution",
    "fedldp: person_dp_sgd": "person-dp-sgd-mnist",
}
"""Recipes whose budget is for the whole run, by what is used."""

UNITS = {"weight": "one weight", "record": "one example", "client-run": "all that a client sends"}

LOW, HIGH, NONE = 0.1, 1e8, 1e9
"""Ends of the scale, and where on it a cross stands: nothing is proven."""

WIDTH, LEFT, RIGHT, TOP, STEP = 760, 262, 735, 58, 41
STYLE = """<style>
svg { --page: #fff; --ink: #1c1f23; --grid: #d5d9de; --claim: #b04a00; --truth: #0b57a4;
  --bad: #b3261e; font: 13px sans-serif }
@media (prefers-color-scheme: dark) { svg { --page: #14171b; --ink: #e6e8eb; --grid: #3a4048;
  --claim: #ffb070; --truth: #7ab8f5; --bad: #ff8a80 } }
text { fill: var(--ink) } .name { font-weight: bold } .small { font-size: 12px }
line { stroke: var(--grid) } .gap { stroke: var(--bad); stroke-width: 2; stroke-dasharray: 2 3 }
.claim { fill: var(--page); stroke: var(--claim); stroke-width: 2 } .truth { fill: var(--truth) }
.none { fill: none; stroke: var(--bad); stroke-width: 3 }
</style>"""


@dataclass(frozen=True)
class Row:
    """One system.

    Attributes:
        name: for people.
        claimed: the epsilon of its source; None where there is no claim.
        claimed_for: the unit of the claim.
        proven: the least epsilon against the server, at any delta; None where nothing is proven.
        proven_for: the unit that ``proven`` is of.
    """

    name: str
    claimed: float | None
    claimed_for: str
    proven: float | None
    proven_for: str


def statement(recipe: str) -> dict[str, Any]:
    """Return the statement of a recipe, without lines of a shuffler."""
    config = find_recipe(recipe).config
    with tempfile.TemporaryDirectory() as empty:  # built-in data are known without their files
        return stated_without_shuffler(config, problem_of(config, Path(empty)))


@cache
def rows() -> list[Row]:
    """Return all rows: what is published, then ours."""
    found = []
    for name, recipe in (PUBLISHED | OURS).items():
        said = statement(recipe)
        claim = said["claim"] or {"epsilon": None, "unit": ""}
        lines = [
            (line["epsilon"], line["unit"])
            for line in said["guarantees"]
            if line["adversary"] == "server" and line["epsilon"] is not None
        ]
        whole = [line for line in lines if line[1] == "client-run"]
        if recipe in OURS.values():
            whole = whole or lines
        proven, unit = min(whole, default=(None, "client-run"))
        found.append(Row(name, claim["epsilon"], claim["unit"], proven, unit))
    return found


def across(epsilon: float) -> float:
    """Return where an epsilon stands, in pixels from the left."""
    share = math.log(epsilon / LOW) / math.log(NONE / LOW)
    return round(LEFT + share * (RIGHT - LEFT - 20), 1)


def drawn(row: Row, height: int) -> list[str]:
    """Return the marks and words of a row."""
    end = across(NONE if row.proven is None else row.proven)
    if row.claimed is None:
        words = f"proven for {UNITS[row.proven_for]}"
    else:
        words = f"claims ε {row.claimed:g} for {UNITS[row.claimed_for]}"
    found = [
        f'<text class="name" x="12" y="{height - 3}">{row.name}</text>',
        f'<text class="small" x="12" y="{height + 13}">{words}</text>',
    ]
    if row.claimed is not None:
        start = across(row.claimed)
        found += [
            f'<line class="gap" x1="{start}" x2="{end}" y1="{height}" y2="{height}"/>',
            f'<path class="claim" d="M{start - 7} {height}l7 -7 7 7 -7 7z"/>',
        ]
    if row.proven is None:
        found.append(f'<path class="none" d="M{end - 6} {height - 6}l12 12m0 -12l-12 12"/>')
        return found
    place, anchor = (end + 11, "start") if end < RIGHT - 140 else (end - 11, "end")
    found += [
        f'<circle class="truth" cx="{end}" cy="{height}" r="7"/>',
        f'<text class="small" x="{place}" y="{height - 8}" text-anchor="{anchor}">'
        f"{rounded(row.proven)}</text>",
    ]
    return found


def rounded(epsilon: float) -> str:
    """Return an epsilon for people, rounded up to what is shown."""
    return f"{math.ceil(epsilon):,}" if epsilon >= 100 else number(epsilon)


def picture() -> str:
    """Return the picture as SVG."""
    below = TOP + STEP * len(rows()) + 6
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {below + 50}"'
        f' width="{WIDTH}" role="img">',
        f"<title>{spoken()}</title>",
        STYLE,
        f'<rect width="{WIDTH}" height="{below + 50}" rx="6" style="fill: var(--page)"/>',
        '<path class="claim" d="M13 22l7 -7 7 7 -7 7z"/>'
        '<text x="36" y="27">what the paper claims, for its own unit</text>'
        '<circle class="truth" cx="309" cy="22" r="7"/>'
        '<text x="324" y="27">what is proven for all that one client sends</text>'
        '<path class="none" d="M613 16l12 12m0 -12l-12 12"/>'
        '<text x="634" y="27">nothing proven</text>',
    ]  # fmt: skip
    for power in range(round(math.log10(LOW)), round(math.log10(HIGH)) + 1):
        place = across(10.0**power)
        parts.append(f'<line x1="{place}" x2="{place}" y1="{TOP - 14}" y2="{below}"/>')
        if power % 2 == 0:
            shown = f"{10**power:,}"
            parts.append(
                f'<text class="small" x="{place}" y="{below + 18}" text-anchor="middle">'
                f"{shown}</text>"
            )
    parts.append(
        f'<text class="small" x="{(LEFT + RIGHT) // 2}" y="{below + 38}" text-anchor="middle">'
        "ε against the server, on a logarithmic scale: the further left, the better</text>"
    )
    for place, row in enumerate(rows()):
        parts += drawn(row, TOP + 10 + STEP * place)
    return "\n".join([*parts, "</svg>\n"])


def spoken() -> str:
    """Return what the picture shows, in words."""
    said = []
    for row in rows():
        proven = "nothing" if row.proven is None else f"epsilon {rounded(row.proven)}"
        claimed = (
            f"claims epsilon {row.claimed:g} for {UNITS[row.claimed_for]}, and " if row.claimed
            else ""
        )  # fmt: skip
        said.append(f"{row.name} {claimed}has {proven} proven for {UNITS[row.proven_for]}")
    return "; ".join(said)


def block(to_docs: str) -> str:
    """Return the picture and the words beneath it, as Markdown.

    Args:
        to_docs: the way from the page to the folder docs.
    """
    first = rows()[0]
    assert first.claimed is not None
    assert first.proven is not None
    accuracy = 100 * published()[PUBLISHED[first.name]].mean
    return (
        f"![{spoken()}]({to_docs}claim.svg)\n\n"
        f"{first.name} reaches {accuracy:.0f} % accuracy on MNIST at its paper's settings and "
        f"claims ε {first.claimed:g}. That holds for {UNITS[first.claimed_for]} of\n"
        f"one report; for all that one client sends, the proven ε is {rounded(first.proven)}. "
        f"[Systems: claim and truth]({to_docs}systems.md) goes through them all.\n"
    )


def updated(page: str) -> str:
    """Return a page's text with the picture and its words made anew."""
    text = (ROOT / page).read_text(encoding="utf-8")
    new = f"<!-- claim -->\n{block(PAGES[page])}<!-- end of claim -->"
    return re.sub(r"<!-- claim -->\n.*?<!-- end of claim -->", lambda _: new, text, flags=re.S)


def main() -> None:
    """Write the picture and the pages."""
    PICTURE.write_text(picture(), encoding="utf-8")
    for page in PAGES:
        (ROOT / page).write_text(updated(page), encoding="utf-8")


if __name__ == "__main__":
    main()
