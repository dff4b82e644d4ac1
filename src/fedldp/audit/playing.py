"""Plays all games of an audit, the most telling first, in one process or several.

Any number of processes gives the same bounds. First come the few games that together find all
planted mistakes: those of ``tests/audit``, where each is played against ``FIRST``. The order was
found by playing every quick game on all of them: the cheapest that finds something new is next.
"""

from __future__ import annotations

import math
import multiprocessing
import time
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from fnmatch import fnmatch
from functools import partial
from typing import Any

from fedldp.audit.bounds import check_confidence
from fedldp.audit.game import Planned
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import Audit, GameResult
from fedldp.core.errors import ConfigError

FIRST: Sequence[tuple[str, str]] = (
    ("exact", "sums over people that are no sums, fitted features, broken contracts"),
    ("weights at 1, 1", "a category's weights that are off by one"),
    ("weights at 4, 64", "the better of two seeds"),
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


def cover(games: Sequence[Planned], confidence: float) -> list[Planned]:
    """Return the few games of each subject that find most, of those that can refute a line.

    These are the games in ``FIRST`` whose lines have a figure; of a subject without these, exact
    checks aside, the first that comes.

    Args:
        games: the games of all subjects.
        confidence: the confidence level at which all bounds are to hold together.
    """
    found: list[Planned] = []
    known: set[str] = set()
    each = _share(games, confidence)
    for planned in sorted(games, key=rank):
        stated = any(line.smallest is not None for line in planned.lines)
        chosen = (rank(planned) < len(FIRST) and stated) or planned.subject not in known
        if chosen and planned.can_refute(each):
            found.append(planned)
            known |= {planned.subject} if planned.key != "exact" else set()
    return found


def _share(games: Iterable[Planned], confidence: float) -> float:
    """Return the confidence level of each bound, if all share the probability of error."""
    return 1 - (1 - confidence) / max(1, sum(planned.bounds for planned in games))


def play(
    subject: str,
    games: Sequence[Planned],
    *,
    confidence: float,
    trials: int | None,
    seed: int,
    workers: int = 1,
    futile: bool = True,
    seconds: float = math.inf,
    tell: Callable[[str], None] = lambda line: None,
) -> Audit[GameResult]:
    """Play all games.

    Args:
        subject: what is audited, for the reader.
        games: the games.
        confidence: the confidence level at which all bounds hold together; the bounds share the
            probability of error.
        trials: the number of trials of each input, for counting; None: as many as seem worthwhile.
        seed: the seed of all randomness.
        workers: the number of processes; any number gives the same bounds.
        futile: whether to play games, too, of which no outcome can refute a line.
        seconds: no game of a subject starts after its earlier ones took as many CPU seconds.
        tell: called with a progress line before each game, or, with several processes, before its
            result is awaited.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_arguments(confidence, trials)
    each = _share(games, confidence)
    rows: dict[int, list[GameResult]] = {}
    if not futile:
        for at, planned in enumerate(games):
            if not planned.can_refute(each, trials):
                rows[at] = _unplayed(planned, "no outcome of so few trials could refute it")
        played = [planned for at, planned in enumerate(games) if at not in rows]
        each = _share(played, confidence)
    order = sorted(set(range(len(games))) - set(rows), key=lambda at: rank(games[at]))
    answer = partial(_rows, keys=AuditKeys(seed), confidence=each, trials=trials)
    spent: Counter[str] = Counter()
    with _calls(min(workers, len(order))) as call:
        answers = [call(answer, games[at]) for at in order]
        for number, (at, found) in enumerate(zip(order, answers, strict=True), 1):
            planned = games[at]
            if spent[planned.subject] >= seconds:
                found.cancel()
                rows[at] = _unplayed(planned, f"the {seconds:g} CPU seconds are over")
                continue
            tell(f"{number}/{len(order)} {planned.title}")
            rows[at], took = found.result()
            spent[planned.subject] += took
    in_turn = tuple(row for at in range(len(games)) for row in rows[at])
    return Audit(subject=subject, confidence=confidence, seed=seed, rows=in_turn)


Answer = tuple[list[GameResult], float]
"""The rows of a game, and the CPU seconds that it took."""


class _Later:
    """A call in this process, which is made when its result is asked for."""

    def __init__(self, call: Callable[[Planned], Answer], planned: Planned) -> None:
        self.result = partial(call, planned)

    def cancel(self) -> None:
        pass


@contextmanager
def _calls(workers: int) -> Iterator[Callable[..., Any]]:
    """Yield what calls a function in one of several processes, or later in this one."""
    if workers < 2:
        yield _Later
        return
    with ProcessPoolExecutor(workers, multiprocessing.get_context("spawn")) as processes:
        yield processes.submit


def _unplayed(planned: Planned, why: str) -> list[GameResult]:
    return [line.result(attack="not played", note=f"not played: {why}") for line in planned.lines]


def check_arguments(confidence: float, trials: int | None) -> None:
    """Refuse an invalid confidence or number of trials, before games are made.

    Raises:
        ConfigError: one of them is out of range.
    """
    check_confidence(confidence)
    if trials is not None and trials < 1:
        raise ConfigError(f"trials = {trials}: give 1 or more")


def _rows(planned: Planned, keys: AuditKeys, confidence: float, trials: int | None) -> Answer:
    start = time.process_time()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mechanism's warnings of overflow are not refusals
        found = planned.play(keys, confidence, trials)
    return found, time.process_time() - start
