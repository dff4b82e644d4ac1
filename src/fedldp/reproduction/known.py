"""Why our numbers differ from the papers' numbers, by recipe, or, for gains, by target and row.

A paper's folder has the reasons in ``known.toml``. Every committed cell that differs by more than a
point from the paper's number has one: either a cause, with the run that tested it, or a string that
begins with "not known". A cell outside its tolerance that has none makes ``fedldp reproduce
--check`` fail.
"""

from __future__ import annotations

import tomllib
from pathlib import Path

from fedldp.core.registry import paper_folders

NOT_KNOWN = "not known"
"""The prefix of a reason that gives a possible cause, and the command that would test it."""


def known() -> dict[str, str]:
    """Return every reason by what it explains."""
    documents = (
        tomllib.loads(Path(file).read_text(encoding="utf-8"))
        for file in paper_folders("known.toml")
    )
    return {
        name: each["why"]
        for document in documents
        for each in document["known"]
        for name in each["of"]
    }
