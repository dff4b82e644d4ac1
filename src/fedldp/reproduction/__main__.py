"""What a maintainer runs: python -m fedldp.reproduction [PAGE | --publish | --restore].

PAGE, docs/reproduction.md or one of docs/papers, gets its tables anew from the committed results;
with --publish, those get the user's own measurements where they have more seeds. With --restore,
committed results of one seed become the user's own, so that further seeds join them.
"""

from __future__ import annotations

import sys
from importlib.resources import files
from pathlib import Path

from fedldp.data import resolve_data_dir
from fedldp.reproduction.pages import updated
from fedldp.reproduction.publishing import document, restore, text_of
from fedldp.reproduction.results import Store, default_cache
from fedldp.reproduction.targets import targets


def main(argument: str) -> None:
    """Do what the argument says."""
    if argument == "--publish":
        path = Path(str(files("fedldp.reproduction").joinpath("published.json")))
        found = document(targets().values(), Store(default_cache()), resolve_data_dir(None))
        path.write_text(text_of(found), encoding="utf-8")
    elif argument == "--restore":
        restore(Store(default_cache()))
    else:
        page = Path(argument)
        page.write_text(updated(page.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
