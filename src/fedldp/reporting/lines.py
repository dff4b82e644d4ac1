"""Which lines of a statement come first in a document, and which are the strongest."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, get_args

from pydantic import ValidationError

from fedldp.accounting.guarantees import HOUSE, Adversary, Guarantee
from fedldp.accounting.statement import Statement
from fedldp.algorithms.settings import PrivacyTarget

Pair = tuple[str, str]
"""A unit, and an adversary."""

_HEADLINES: tuple[Pair, ...] = (
    ("client-run", "server"),
    *(
        (unit, who)
        for who in ("server", "summing-server", "downlink")
        for unit in ("person", "record")
    ),
)
_FIRST = (*_HEADLINES, *(("client-run", who) for who in get_args(Adversary)))


def best_lines(privacy: Statement) -> dict[Pair, Guarantee]:
    """Return the strongest line for each unit and adversary; ideal numbers come last."""
    best: dict[Pair, Guarantee] = {}
    for line in privacy.guarantees:
        found = best.setdefault((line.unit, line.adversary), line)
        if (line.is_idealised, line.size) < (found.is_idealised, found.size):
            best[line.unit, line.adversary] = line
    return best


def headline(privacy: Statement, asked: Pair | None = None) -> Guarantee | None:
    """Return the line that tables and charts of runs show, for one unit and adversary.

    If no guarantee is requested, the line covers everything that a client sends in its run, with
    the server as the adversary. If nothing is known about that, the line covers a person, or a row.
    If nothing is known about these against the server either, the adversary is one who sees less
    than the server: only sums, or only broadcasts.
    """
    return _first_known(privacy, _HEADLINES, asked)


def first_line(privacy: Statement, asked: Pair | None = None) -> Guarantee | None:
    """Return the line with which the documents of a run begin: the headline.

    If nothing is known about the headline, the line covers everything that a client sends in its
    run, with an adversary who sees less than the server.
    """
    return _first_known(privacy, _FIRST, asked)


def _first_known(privacy: Statement, pairs: Sequence[Pair], asked: Pair | None) -> Guarantee | None:
    best = best_lines(privacy)
    if asked is not None:
        return best.get(asked)
    known = (best[pair] for pair in pairs if pair in best and best[pair].epsilon is not None)
    return next(known, best.get(pairs[0]))


def behind_sums(privacy: Statement) -> float | None:
    """Return a person's or a row's headline epsilon against a server that sees only sums.

    Return None if this epsilon is not known, or not smaller than the epsilon against the server.
    """
    line = headline(privacy)
    if line is None or line.adversary != "server" or line.unit not in ("person", "record"):
        return None
    found = best_lines(privacy).get((line.unit, "summing-server"))
    return None if found is None or found.size >= line.size else found.size


def asked_for(config: Mapping[str, Any]) -> Pair | None:
    """Return the unit and the adversary of a run's target; None without a complete target.

    Args:
        config: the run's configuration; if read from a folder, somebody else may have written it.
    """
    try:
        target = PrivacyTarget.model_validate(config.get("target"), strict=True)
    except ValidationError:
        return None
    return target.unit, target.adversary


def asked_first(
    privacy: Statement, asked: Pair | None, first: Guarantee | None = None
) -> Statement:
    """Return a statement that begins with a line, if one is given, and those of the same pair."""
    lines = sorted(
        privacy.guarantees,
        key=lambda line: (line is not first, (line.unit, line.adversary) != asked),
    )
    return replace(privacy, guarantees=tuple(lines))


def headline_first(privacy: Statement, asked: Pair | None) -> Statement:
    """Return a statement that begins with its ``first_line``."""
    line = first_line(privacy, asked)
    return asked_first(privacy, asked if line is None else (line.unit, line.adversary), line)


def own_words(privacy: Statement) -> list[str]:
    """Return the addresses ("module:name") of the user's own code that states some lines."""
    found = dict.fromkeys(line.stated_by for line in privacy.guarantees)
    return [by for by in found if by != HOUSE]
