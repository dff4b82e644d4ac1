"""Draw what published systems claim beside what is proven, for the README and the home page.

    python -m benchmarks.claim_picture

It writes docs/claim.svg and, narrower, docs/claim_phone.svg. In both pages it writes the picture
with its words between ``<!-- claim -->`` and its end. All figures come from statements of the
package; nothing is trained.
"""

from __future__ import annotations

import math
import re
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from fedldp.accounting.statement import Statement
from fedldp.algorithms.recipes import find_recipe
from fedldp.core.formatting import number
from fedldp.experiments.reproduction.results import published
from fedldp.simulation.plan import problem_of, stated_without_shuffler

ROOT = Path(__file__).parents[1]
PAGES = {"README.md": "docs/", "docs/index.md": ""}
"""The pages, and the way from each to the folder docs."""

PUBLISHED = {
    "LDP-FL": "ldp-fl-mnist",
    "LDPFL": "ldpfl-mnist",
    "Feature priority": "priority-mnist-fig6-least20",
    "Personalised LDP": "personalized-mnist-fig2-low",
    "NbAFL": "nbafl-mnist",
    "CLDP-Fed": "cldp-fed-fmnist",
}
"""Recipes at the papers' settings, by the system's name for people."""

OURS = {
    "fedldp: k_closest, once": "composed-mnist-solution",
    "fedldp: person_dp_sgd": "person-dp-sgd-mnist",
}
"""Recipes whose budget is for the whole run, by the protection that they use."""

UNITS = {"weight": "one weight", "record": "one example", "client-run": "all that a client sends"}

LABELS = {0: "1", 2: "100", 4: "10⁴", 6: "10⁶", 8: "10⁸"}
"""Powers of ten that the scale names."""

LOW, HIGH, NONE = 0.1, 1e8, 1e9
"""The ends of the scale, and where on it a cross marks that nothing is proven."""

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
class Layout:
    """The places of a picture's parts, in pixels.

    Attributes:
        width: of the picture.
        left, right: ends of the scale.
        legend: the left end and the height of each of the three marks that are explained.
        top: where the scale begins.
        step: from one row to the next.
        drop: from a row's name to its marks. 0 puts them side by side.
    """

    width: int
    left: int
    right: int
    legend: tuple[tuple[int, int], tuple[int, int], tuple[int, int]]
    top: int
    step: int
    drop: int

    def across(self, epsilon: float) -> float:
        """Return where an epsilon stands, in pixels from the left."""
        share = math.log(epsilon / LOW) / math.log(NONE / LOW)
        return round(self.left + share * (self.right - self.left - 20), 1)


PICTURES = {
    "claim.svg": Layout(760, 262, 735, ((20, 22), (309, 22), (619, 22)), 58, 41, 0),
    "claim_phone.svg": Layout(340, 18, 336, ((20, 22), (20, 44), (20, 66)), 94, 70, 37),
}
"""Pictures in docs: for wide screens, and for phones."""

MEANINGS = (
    "what the paper claims, for its own unit",
    "what is proven for all that one client sends",
    "nothing proven",
)
"""What the marks of a legend mean."""


@dataclass(frozen=True)
class Row:
    """One system.

    Attributes:
        name: the system's name for people.
        claimed: the epsilon that its source claims; None if it claims none.
        claimed_for: the unit of the claim.
        proven: the least epsilon against the server, at any delta; None if nothing is proven.
        proven_for: the unit of ``proven``.
    """

    name: str
    claimed: float | None
    claimed_for: str
    proven: float | None
    proven_for: str


def statement(recipe: str) -> Statement:
    """Return the statement of a recipe, without lines about a shuffled server."""
    config = find_recipe(recipe).config
    with tempfile.TemporaryDirectory() as empty:  # built-in data sets are described without files
        return stated_without_shuffler(config, problem_of(config, Path(empty)))


@cache
def rows() -> list[Row]:
    """Return all rows: the published systems, then ours."""
    found = []
    for name, recipe in (PUBLISHED | OURS).items():
        said = statement(recipe)
        claim = said.claim
        lines = [
            (line.epsilon, line.unit)
            for line in said.guarantees
            if line.adversary == "server" and line.epsilon is not None
        ]
        whole = [line for line in lines if line[1] == "client-run"]
        if recipe in OURS.values():
            whole = whole or lines
        proven, unit = min(whole, default=(None, "client-run"))
        found.append(Row(name, claim and claim.epsilon, claim.unit if claim else "", proven, unit))
    return found


def drawn(row: Row, height: int, layout: Layout) -> list[str]:
    """Return the words and marks of a row at a height."""
    end = layout.across(NONE if row.proven is None else row.proven)
    if row.claimed is None:
        words = f"proven for {UNITS[row.proven_for]}"
    else:
        words = f"claims ε {row.claimed:g} for {UNITS[row.claimed_for]}"
    found = [
        f'<text class="name" x="12" y="{height - 3}">{row.name}</text>',
        f'<text class="small" x="12" y="{height + 13}">{words}</text>',
    ]
    height += layout.drop
    if row.claimed is not None:
        start = layout.across(row.claimed)
        found += [
            f'<line class="gap" x1="{start}" x2="{end}" y1="{height}" y2="{height}"/>',
            f'<path class="claim" d="M{start - 7} {height}l7 -7 7 7 -7 7z"/>',
        ]
    if row.proven is None:
        found.append(f'<path class="none" d="M{end - 6} {height - 6}l12 12m0 -12l-12 12"/>')
        return found
    rightmost = layout.right - (layout.right - layout.left) // 3
    place, anchor = (end + 11, "start") if end < rightmost else (end - 11, "end")
    found += [
        f'<circle class="truth" cx="{end}" cy="{height}" r="7"/>',
        f'<text class="small" x="{place}" y="{height - 8}" text-anchor="{anchor}">'
        f"{rounded(row.proven)}</text>",
    ]
    return found


def rounded(epsilon: float) -> str:
    """Return an epsilon as it is shown, rounded up."""
    return f"{math.ceil(epsilon):,}" if epsilon >= 100 else number(epsilon)


def picture(layout: Layout) -> str:
    """Return the picture as SVG."""
    below = layout.top + layout.step * len(rows()) + 6
    claim, truth, none = layout.legend
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {layout.width} {below + 50}"'
        f' width="{layout.width}" role="img">',
        f"<title>{spoken()}</title>",
        STYLE,
        f'<rect width="{layout.width}" height="{below + 50}" rx="6" style="fill: var(--page)"/>',
        f'<path class="claim" d="M{claim[0] - 7} {claim[1]}l7 -7 7 7 -7 7z"/>',
        f'<circle class="truth" cx="{truth[0]}" cy="{truth[1]}" r="7"/>',
        f'<path class="none" d="M{none[0] - 6} {none[1] - 6}l12 12m0 -12l-12 12"/>',
    ]
    parts += [
        f'<text x="{mark[0] + 16}" y="{mark[1] + 5}">{meaning}</text>'
        for mark, meaning in zip(layout.legend, MEANINGS, strict=True)
    ]
    for power in range(round(math.log10(LOW)), round(math.log10(HIGH)) + 1):
        place = layout.across(10.0**power)
        parts.append(f'<line x1="{place}" x2="{place}" y1="{layout.top - 14}" y2="{below}"/>')
        if power in LABELS:
            parts.append(
                f'<text class="small" x="{place}" y="{below + 18}" text-anchor="middle">'
                f"{LABELS[power]}</text>"
            )
    parts.append(
        f'<text class="small" x="{layout.left}" y="{below + 38}">'
        "ε against the server, logarithmic: left is better</text>"
    )
    for place, row in enumerate(rows()):
        parts += drawn(row, layout.top + 10 + layout.step * place, layout)
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
        f'<picture><source media="(max-width: 600px)" srcset="{to_docs}claim_phone.svg">'
        f'<img alt="{spoken()}" src="{to_docs}claim.svg"></picture>\n\n'
        f"{first.name} reaches {accuracy:.0f} % accuracy on MNIST with its paper's ε, clients and "
        "rounds (batch size, epochs and CNN are ours) and "
        f"claims ε {first.claimed:g}. That holds for {UNITS[first.claimed_for]} of\n"
        f"one report; for all that one client sends, the proven ε is {rounded(first.proven)}. "
        f"[Systems: claim and truth]({to_docs}systems.md) covers every system.\n"
    )


def updated(page: str) -> str:
    """Return a page's text with a new picture and its words."""
    text = (ROOT / page).read_text(encoding="utf-8")
    new = f"<!-- claim -->\n{block(PAGES[page])}<!-- end of claim -->"
    return re.sub(r"<!-- claim -->\n.*?<!-- end of claim -->", lambda _: new, text, flags=re.S)


def main() -> None:
    """Write the pictures and the pages."""
    for name, layout in PICTURES.items():
        (ROOT / "docs" / name).write_text(picture(layout), encoding="utf-8")
    for page in PAGES:
        (ROOT / page).write_text(updated(page), encoding="utf-8")


if __name__ == "__main__":
    main()
