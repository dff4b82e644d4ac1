"""Which games an audit plays against a mechanism, to compare its epsilons with what they show."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from fedldp.accounting.accountants import coordinate_of, has_identical_coordinates, is_pure, on_side
from fedldp.accounting.guarantees import Unit
from fedldp.audit.efforts import Effort
from fedldp.audit.game import Planned
from fedldp.audit.mechanism_checks import ContractCheck, WeightCheck
from fedldp.audit.observations import needs_simulated
from fedldp.audit.report_games import (
    BLOCK,
    CoordinateGame,
    RepetitionGame,
    ReportGame,
    lines_of,
)
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.mechanisms import Mechanism, MechanismSettings, stated_event

DELTA = 1e-5
CLIP = 1.0
"""The value of the setting ``clip``, for every mechanism."""
CURVE = (0.01, 0.1, 0.3)
"""More deltas, for a guarantee that is a curve: few trials may show more at these deltas."""


def planned_games(cls: type[Mechanism], effort: Effort) -> list[Planned]:
    """Return the games of a mechanism: at the audit's settings, and for its examples with a claim.

    If a report is one category, the words that draw each category are counted as well. The audit
    also checks that the mechanism refuses what it must, and that its reports can be read.

    Raises:
        ConfigError: no setting suits it.
    """
    found: list[Planned] = []
    checks: list[Planned] = []
    refusals: list[FedldpError] = []
    tried = effort.mechanism_settings
    least = min((e, d) for e, d in tried if d == min(d for _, d in tried))
    for epsilon, size in tried:
        settings = MechanismSettings(epsilon=epsilon, delta=DELTA, clip=CLIP, size=size)
        try:
            mechanism = cls.from_settings(settings)
            stated_event(mechanism, size)
        except FedldpError as error:
            refusals.append(error)
            continue
        asks = cls.epsilon_unit
        found += _reports_of(mechanism, size, epsilon, asks, effort)
        if (epsilon, size) == least:
            last = _deltas(mechanism, size)[-1:]  # only where the game reveals most
            lines = lines_of(mechanism, size, "client-run", last)
            key = f"client-run at {epsilon:g}, {size}"
            found.append(ReportGame(mechanism=mechanism, lines=lines, effort=effort, key=key))
        checks += _weights_of(mechanism, size, epsilon, effort)
        duties = lines_of(mechanism, size, "client-round", _deltas(mechanism, size)[:1])
        checks.append(ContractCheck(mechanism=mechanism, lines=duties, key="exact"))
    for epsilon in dict.fromkeys(epsilon for epsilon, _ in tried):
        try:
            found += _coordinates_of(cls, epsilon, effort)
        except FedldpError:
            continue  # the mechanism does not accept so many coordinates
    for mechanism in cls.examples():  # some state what their source claims for a report
        claimed = getattr(mechanism, "claimed_epsilon", None)
        if claimed is not None:
            found += _reports_of(mechanism, _SIZE_OF_CLAIMS, claimed, "client-round", effort)
    if not found:
        raise ConfigError(
            f"mechanism = {cls.__name__}: it accepts none of the audit's settings: {refusals[0]}"
        )
    return [*found, *checks]


_SIZE_OF_CLAIMS = 8


def _deltas(mechanism: Mechanism, size: int) -> tuple[float, ...]:
    return (0.0,) if is_pure(stated_event(mechanism, size)) else (DELTA, *CURVE)


def _reports_of(
    mechanism: Mechanism, size: int, epsilon: float, claims: Unit, effort: Effort
) -> Iterator[ReportGame]:
    """Yield the games on whole reports, where ``epsilon`` is claimed for a unit."""
    units: list[Unit] = ["client-round"]
    if size > 1 and coordinate_of(on_side(stated_event(mechanism, size), "client")) is not None:
        units.append("weight")
    for unit in units:
        claimed = epsilon if unit == claims or size == 1 else None  # one weight is a whole report
        lines = lines_of(mechanism, size, unit, _deltas(mechanism, size), claimed)
        key = f"{unit} at {epsilon:g}, {size}"
        yield ReportGame(mechanism=mechanism, lines=lines, effort=effort, key=key)


def _coordinates_of(
    cls: type[Mechanism], epsilon: float, effort: Effort
) -> Iterator[CoordinateGame | RepetitionGame]:
    """Yield the games whose trials are coordinates, where these are independent and identical.

    If the budget covers a whole report, almost none of it is left for one of so many coordinates.
    """
    settings = MechanismSettings(epsilon=epsilon, delta=DELTA, clip=CLIP, size=BLOCK)
    mechanism = cls.from_settings(settings)
    event = stated_event(mechanism, BLOCK)
    if cls.epsilon_unit != "weight" or not has_identical_coordinates(event):
        return
    lines = lines_of(mechanism, BLOCK, "weight", claimed=epsilon)
    key = f"coordinates at {epsilon:g}"
    yield CoordinateGame(mechanism=mechanism, lines=lines, effort=effort, key=key)
    long = replace(settings, size=effort.mechanism_long)
    mechanism = cls.from_settings(long)
    lines = lines_of(mechanism, long.size, "weight", claimed=epsilon)
    key = f"repetitions at {epsilon:g}"
    yield RepetitionGame(mechanism=mechanism, lines=lines, effort=effort, key=key)


def _weights_of(
    mechanism: Mechanism, size: int, epsilon: float, effort: Effort
) -> Iterator[WeightCheck]:
    try:
        stated = mechanism.category(size)
    except FedldpError:
        return  # such a report must not be shuffled, so no guarantee depends on its weights
    if stated is None or 2 * stated.categories > effort.mechanism_most_words:
        return
    if needs_simulated(mechanism, size):
        return
    claims = size == 1 or mechanism.epsilon_unit == "client-round"
    lines = lines_of(mechanism, size, "client-round", claimed=epsilon if claims else None)
    key = f"weights at {epsilon:g}, {size}"
    yield WeightCheck(mechanism=mechanism, stated=stated, lines=lines, key=key)
