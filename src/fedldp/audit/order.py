"""In which order an audit plays its games: first the few that together find all planted mistakes.

The planted mistakes are those of ``tests/audit``, where each is played against ``FIRST``. The order
was found by playing every quick game on all of them: the cheapest that finds something new is next.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fnmatch import fnmatch

from fedldp.audit.game import Planned

FIRST: Sequence[tuple[str, str]] = (
    ("exact", "weights of a category, sums over people, fitted features, broken contracts"),
    ("client-round at 1, 1", "a missing clip, half of the noise, a length or refusal that tells"),
    ("client-round at 4, 64", "a wrong norm"),
    ("weight at 4, 64", "a range that depends on the values, a stream that is used twice"),
    ("coordinates at 12", "probabilities in float32, closed thresholds"),
    ("coordinates at 4", "coordinates that are often in clear"),
    ("repetitions at 1", "noise that repeats within a report"),
    ("small: *, server, with all numbers from the server multiplied by 16", "no clip, half noise"),
    ("small: client-run, server", "noise or answers that depend on the earlier rounds"),
    ("late: *", "noise that becomes less over the rounds"),
    ("small: client-round, shuffled-server", "a crowd that is overstated"),
    ("small: client-round, summing-server", "noise that is missing in a sum"),
    ("small: person, summing-server", "a divisor that depends on the people"),
    ("small: *, downlink", "noise that the server leaves out"),
    ("senders", "reports that name their sender"),
)
"""Keys of games, with wildcards, and some of the mistakes that they find."""


def rank(planned: Planned) -> int:
    """Return the place of a game in ``FIRST``, or its length for all others."""
    keys = [key for key, _ in FIRST]
    return next((at for at, key in enumerate(keys) if fnmatch(planned.key, key)), len(keys))


def cover(games: Iterable[Planned]) -> list[Planned]:
    """Return the games in ``FIRST`` whose lines have a figure; of a subject without, its first."""
    found: list[Planned] = []
    known: set[str] = set()
    for planned in sorted(games, key=rank):
        stated = any(line.smallest is not None for line in planned.lines)
        if (rank(planned) < len(FIRST) and stated) or planned.subject not in known:
            found.append(planned)
            known.add(planned.subject)
    return found
