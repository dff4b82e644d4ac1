"""Makes the documentation site: its result pages, from the committed results, and then its HTML.

    python -m benchmarks.site            makes docs/results and builds docs into the folder site
    python -m benchmarks.site --pages    makes only docs/results, which zensical serve needs

No page of docs/results is committed: nobody can forget to make it again.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from benchmarks import (
    attacks,
    audit_table,
    cifar_trials,
    linkage,
    many_clients,
    poisoning,
    public_alone,
    study,
)
from benchmarks.blocks import from_template
from fedldp.experiments.reproduction.pages import name_of_page, updated, write_page
from fedldp.experiments.reproduction.targets import targets

ROOT = Path(__file__).parents[1]
PAPERS = ("ldp_fl", "ldpfl", "personalised", "priority")
TRIALS = ROOT / "src" / "fedldp" / "papers" / "ldp_fl" / "cifar_trials.jsonl"


def _trials() -> str:
    made = {"trials": cifar_trials.table(cifar_trials.rows_of(TRIALS))}
    return from_template("reproduction_cifar_trials", made)


OF_REPRODUCTION: dict[str, Callable[[], str]] = {
    "reproduction_cifar_trials.md": _trials,
    **{
        f"{name}.md": lambda name=name: updated(from_template(name, {}))
        for name in (
            "reproduction_left",
            "reproduction_overview",
            *(f"claims_{paper}" for paper in PAPERS),
        )
    },
}
"""What makes the pages of the reproduction that are of no single target, by file name."""


OTHERS: dict[str, Callable[[], str]] = {
    "many_clients.md": many_clients.page,
    "public_alone.md": public_alone.page,
    **{
        f"{name}.md": lambda name=name: from_template(name, {})
        for name in (
            *(f"elements_{paper}" for paper in PAPERS),
            "distributed_noise",
            "failures",
            "fleet",
            "https_rounds",
            "people",
            "speed",
            "trained_subset",
        )
    },
}
"""What makes the pages of single measurements, by file name."""


def names() -> set[str]:
    """Return the file names of all result pages."""
    of_targets = {f"{name_of_page(name)}.md" for name in targets()}
    of_attacks = {"attacks.md", "linkage.md", "poisoning.md"}
    others = {*audit_table.all_pages(), *study.result_pages(), *OF_REPRODUCTION, *OTHERS}
    return of_attacks | others | of_targets


def write_pages(folder: Path) -> None:
    """Write all result pages, and the charts of those that have some, into a folder."""
    folder.mkdir(exist_ok=True)
    (folder / ".meta.yml").write_text("search:\n  exclude: true\n", encoding="utf-8")
    made = {name: make() for name, make in (OF_REPRODUCTION | OTHERS).items()}
    for name, text in (made | audit_table.all_pages() | study.result_pages()).items():
        (folder / name).write_text(text, encoding="utf-8")
    for of_attacks in (attacks, linkage, poisoning):
        of_attacks.write_page(folder)
    for target in targets().values():
        write_page(target, folder)


def main() -> int:
    """Carry out the command; return its exit status."""
    write_pages(ROOT / "docs" / "results")
    if sys.argv[1:] == ["--pages"]:
        return 0
    return subprocess.run(["zensical", "build", "--strict"], cwd=ROOT, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
