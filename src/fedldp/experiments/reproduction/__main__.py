"""For maintainers: python -m fedldp.experiments.reproduction [PAGE... | --publish | --restore].

For each PAGE (docs/reproduction.md, docs/results/reproduction_*.md or docs/papers/*.md), the tables
and charts are regenerated from the committed results. --publish replaces committed results with the
user's own measurements if these have more seeds. --restore copies committed results of one seed to
the user's own measurements, so that more seeds can be added.
"""

from __future__ import annotations

import sys
from pathlib import Path

from fedldp.data import resolve_data_dir
from fedldp.experiments.reproduction.figure import write_rounds
from fedldp.experiments.reproduction.pages import committed, name_of_chart, updated
from fedldp.experiments.reproduction.publishing import documents, restore, text_of
from fedldp.experiments.reproduction.results import MeasurementStore, default_cache
from fedldp.experiments.reproduction.targets import papers_with_targets, targets


def main(arguments: list[str]) -> None:
    """Carry out the command with the given arguments."""
    if arguments == ["--publish"]:
        found = documents(
            targets().values(), MeasurementStore(default_cache()), resolve_data_dir(None)
        )
        for name, results in found.items():
            path = papers_with_targets()[name].folder / "published.json"
            path.write_text(text_of(results), encoding="utf-8")
    elif arguments == ["--restore"]:
        restore(MeasurementStore(default_cache()))
    else:
        for page in map(Path, arguments):
            text = updated(page.read_text(encoding="utf-8"))
            page.write_text(text, encoding="utf-8")
            for target in targets().values():
                chart = name_of_chart(target.name)
                if f"]({chart})" in text:
                    write_rounds(page.parent / chart, committed(target, prove=False))


if __name__ == "__main__":
    main(sys.argv[1:])
