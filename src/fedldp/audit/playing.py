"""Plays all games of an audit, one by one or in several processes, with the same outcome."""

from __future__ import annotations

import multiprocessing
import warnings
from collections.abc import Callable, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial

from fedldp.audit.bounds import check_confidence
from fedldp.audit.game import Planned
from fedldp.audit.observations import AuditKeys
from fedldp.audit.results import Audit, GameResult
from fedldp.core.errors import ConfigError


def play(
    subject: str,
    games: Sequence[Planned],
    *,
    confidence: float,
    trials: int | None,
    seed: int,
    workers: int = 1,
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
        tell: called with a progress line before each game, or after the game if there are several
            processes.

    Raises:
        ConfigError: an argument is out of range.
    """
    check_arguments(confidence, trials)
    each = 1 - (1 - confidence) / max(1, sum(planned.bounds for planned in games))
    answer = partial(_rows, keys=AuditKeys(seed), confidence=each, trials=trials)
    workers = min(workers, len(games))
    pool = (
        nullcontext()
        if workers < 2
        else ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"))
    )
    rows: list[GameResult] = []
    with pool as processes:
        found = map(answer, games) if processes is None else processes.map(answer, games)
        for number, planned in enumerate(games, 1):
            if processes is None:
                tell(f"{number}/{len(games)} {planned.title}")
            rows += next(found)
            if processes is not None:
                tell(f"{number}/{len(games)} {planned.title}")
    return Audit(subject=subject, confidence=confidence, seed=seed, rows=tuple(rows))


def check_arguments(confidence: float, trials: int | None) -> None:
    """Refuse an invalid confidence or number of trials, before games are made.

    Raises:
        ConfigError: one of them is out of range.
    """
    check_confidence(confidence)
    if trials is not None and trials < 1:
        raise ConfigError(f"trials = {trials}: give 1 or more")


def _rows(
    planned: Planned, keys: AuditKeys, confidence: float, trials: int | None
) -> list[GameResult]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a mechanism's warnings of overflow are not refusals
        return planned.play(keys, confidence, trials)
