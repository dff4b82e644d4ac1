"""The audit of a mechanism: its claim and its proven epsilon, compared with what attacks show."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from fedldp.accounting.accountants import coordinate_of, has_identical_coordinates, is_pure, on_side
from fedldp.accounting.guarantees import HOUSE, Unit, proven_epsilon
from fedldp.audit.contract import PlannedContractCheck
from fedldp.audit.drawn_weights import PlannedWeightCheck
from fedldp.audit.efforts import FULL, QUICK, Effort
from fedldp.audit.games import BLOCK, CoordinateGame, ReportGame
from fedldp.audit.observations import AuditKeys, needs_simulated
from fedldp.audit.playing import PlannedGame, play
from fedldp.audit.repetitions import RepetitionGame
from fedldp.audit.results import Audit, Estimate, Result, note_of, verdict_of
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.mechanisms import Mechanism, MechanismSettings, mechanisms, stated_event

DELTA = 1e-5
CLIP = 1.0
"""The value of the setting ``clip``, for every mechanism."""
CURVE = (0.01, 0.1, 0.3)
"""More deltas, for a guarantee that is a curve: few trials may show more at these deltas."""


@dataclass(frozen=True, kw_only=True)
class PlannedMechanismGame:
    """One game to play, and the epsilons that its bounds are compared with.

    Attributes:
        game: the game to play.
        deltas: the deltas at which epsilon is bounded, with one row for each.
        claimed: the epsilon claimed at each delta.
        proven: the epsilon proven at each delta.
        effort: how many trials.
    """

    game: ReportGame | CoordinateGame | RepetitionGame
    deltas: tuple[float, ...]
    claimed: tuple[float | None, ...]
    proven: tuple[float | None, ...]
    effort: Effort = QUICK

    @property
    def bounds(self) -> int:
        """How many rows the game gives."""
        return len(self.deltas)

    @property
    def title(self) -> str:
        """A description of the game, for a progress line."""
        game = self.game
        return f"{game.mechanism!r}, d = {game.size}, {_unit(game)[1]}"

    def rows(self, keys: AuditKeys, confidence: float, trials: int | None) -> Iterator[Result]:
        """Play, and yield a row for each of ``deltas``."""
        game, effort = self.game, self.effort
        if not isinstance(game, ReportGame):
            if game.found.left_out:
                yield self._left_out(game.found.left_out)
            if game.found.codes is None:
                return
        if isinstance(game, CoordinateGame):
            assert self.proven[0] is not None
            shown = [game.play(self.proven[0], effort, keys, confidence, trials)]
        elif isinstance(game, RepetitionGame):
            shown = [game.play(keys, confidence)]
        else:
            shown = game.play(list(self.deltas), self.proven[0], effort, keys, confidence, trials)
        by = whose(type(game.mechanism))
        unit, _ = _unit(game)
        for delta, claimed, proven, each in zip(
            self.deltas, self.claimed, self.proven, shown, strict=True
        ):
            yield Result(
                subject=repr(game.mechanism),
                game="mechanism",
                attack=each.attack,
                measure="epsilon",
                measured=Estimate.at_least(each.lower),
                size=game.size,
                unit=unit,
                neighbours="replace-client",
                delta=delta,
                claimed=claimed,
                proven=proven,
                confidence=confidence,
                trials=each.trials,
                verdict=verdict_of(claimed, proven, each.lower),
                note=note_of(proven, each.lower, by, each.finds(proven)),
                stated_by=by,
                finds=each.finds(proven),
            )

    def _left_out(self, why: str) -> Result:
        """Return a row without a bound or a verdict, which says what the game leaves out."""
        unit, name = _unit(self.game)
        return Result(
            subject=repr(self.game.mechanism),
            game="mechanism",
            attack=f"{name}: {why}",
            measure="epsilon",
            measured=None,
            size=self.game.size,
            unit=unit,
            neighbours="replace-client",
            delta=self.deltas[0],
            claimed=self.claimed[0],
            proven=self.proven[0],
            note="omitted: no verdict",
            stated_by=whose(type(self.game.mechanism)),
        )


def audit(
    subject: str,
    classes: Sequence[type[Mechanism]],
    *,
    effort: Effort = FULL,
    confidence: float = 0.999,
    trials: int | None = None,
    seed: int = 0,
    workers: int = 1,
    tell: Callable[[str], None] = lambda line: None,
) -> Audit:
    """Play all games of some mechanisms.

    Args:
        subject: what is audited, for the reader.
        classes: the mechanisms' classes.
        effort: how much to try for each mechanism: ``QUICK`` or ``FULL``.
        confidence: the confidence level at which all bounds hold together; the bounds share the
            probability of error.
        trials: the number of trials of each input, for counting; None: as many as seem worthwhile.
        seed: the seed of all randomness.
        workers: the number of processes; any number gives the same bounds.
        tell: called with a progress line for each game.

    Raises:
        ConfigError: an argument is out of range, or no setting suits a mechanism.
    """
    games: list[PlannedGame] = [
        planned for cls in classes for planned in planned_games(cls, effort)
    ]
    return play(
        subject,
        games,
        confidence=confidence,
        trials=trials,
        seed=seed,
        workers=workers,
        tell=tell,
    )


def planned_games(
    cls: type[Mechanism], effort: Effort
) -> list[PlannedMechanismGame | PlannedWeightCheck | PlannedContractCheck]:
    """Return the games of a mechanism: at the audit's settings, and for its examples with a claim.

    If a report is one category, the words that draw each category are counted as well. The audit
    also checks that the mechanism refuses what it must, and that its reports can be read.

    Raises:
        ConfigError: no setting suits it.
    """
    found: list[PlannedMechanismGame] = []
    checks: list[PlannedWeightCheck | PlannedContractCheck] = []
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
        found += _reports_of(mechanism, size, epsilon, again=(epsilon, size) == least)
        checks += _weights_of(mechanism, size, epsilon, effort)
        checks.append(_contract_of(mechanism, size))
    for epsilon in dict.fromkeys(epsilon for epsilon, _ in tried):
        settings = MechanismSettings(epsilon=epsilon, delta=DELTA, clip=CLIP, size=BLOCK)
        try:
            coordinates = list(_coordinates_of(cls.from_settings(settings), epsilon))
            found += coordinates
            if coordinates:
                settings = replace(settings, size=effort.mechanism_long)
                found.append(_repetitions_of(cls.from_settings(settings), epsilon, settings.size))
        except FedldpError:
            continue  # the mechanism does not accept so many coordinates
    found += _claims_of(cls)
    if not found:
        raise ConfigError(
            f"mechanism = {cls.__name__}: it accepts none of the audit's settings: {refusals[0]}"
        )
    return [*(replace(planned, effort=effort) for planned in found), *checks]


def _contract_of(mechanism: Mechanism, size: int) -> PlannedContractCheck:
    pure = is_pure(stated_event(mechanism, size))
    return PlannedContractCheck(
        mechanism=mechanism,
        size=size,
        deltas=(0.0 if pure else DELTA,),
        stated_by=whose(type(mechanism)),
    )


def _weights_of(
    mechanism: Mechanism, size: int, epsilon: float, effort: Effort
) -> Iterator[PlannedWeightCheck]:
    try:
        stated = mechanism.category(size)
    except FedldpError:
        return  # such a report must not be shuffled, so no guarantee depends on its weights
    if stated is None or 2 * stated.categories > effort.mechanism_most_words:
        return
    if needs_simulated(mechanism, size):
        return
    claims = size == 1 or mechanism.epsilon_unit == "client-round"
    yield PlannedWeightCheck(
        mechanism=mechanism,
        size=size,
        claimed=(epsilon if claims else None,),
        stated_by=whose(type(mechanism)),
    )


def whose(mechanism: type[Mechanism]) -> str:
    """Return who states a mechanism's event: "fedldp", or the address of a user's own class."""
    if mechanism in mechanisms().values():
        return HOUSE
    return f"{mechanism.__module__}:{mechanism.__qualname__}"


def _reports_of(
    mechanism: Mechanism, size: int, epsilon: float, *, again: bool
) -> Iterator[PlannedMechanismGame]:
    event = stated_event(mechanism, size)
    deltas = (0.0,) if is_pure(event) else (DELTA, *CURVE)
    units: list[Unit] = ["client-round"]
    if size > 1 and coordinate_of(on_side(event, "client")) is not None:
        units.append("weight")
    for unit in units:
        # With d = 1 a report is one weight.
        claims = unit == mechanism.epsilon_unit or size == 1
        yield PlannedMechanismGame(
            game=ReportGame(mechanism=mechanism, size=size, unit=unit),
            deltas=deltas,
            claimed=tuple(epsilon if claims else None for _ in deltas),
            proven=tuple(proven_epsilon(event, unit, delta) for delta in deltas),
        )
    if again:
        deltas = deltas[-1:]  # only the delta at which the game reveals most
        yield PlannedMechanismGame(
            game=ReportGame(mechanism=mechanism, size=size, unit="client-run"),
            deltas=deltas,
            claimed=(None,),
            proven=(proven_epsilon(event, "client-run", deltas[0], rounds=2),),
        )


def _coordinates_of(mechanism: Mechanism, epsilon: float) -> Iterator[PlannedMechanismGame]:
    game, event = CoordinateGame(mechanism=mechanism), stated_event(mechanism, BLOCK)
    # If the budget covers a whole report, almost none of it is left for one of so many coordinates.
    if mechanism.epsilon_unit == "weight" and has_identical_coordinates(event):
        yield PlannedMechanismGame(
            game=game,
            deltas=(0.0,),
            claimed=(epsilon,),
            proven=(proven_epsilon(event, "weight", 0.0),),
        )


def _repetitions_of(mechanism: Mechanism, epsilon: float, size: int) -> PlannedMechanismGame:
    return PlannedMechanismGame(
        game=RepetitionGame(mechanism=mechanism, size=size),
        deltas=(0.0,),
        claimed=(epsilon,),
        proven=(proven_epsilon(stated_event(mechanism, size), "weight", 0.0),),
    )


def _unit(game: ReportGame | CoordinateGame | RepetitionGame) -> tuple[Unit, str]:
    """Return the unit of a game's epsilons, and the game's name."""
    if isinstance(game, ReportGame):
        return game.unit, game.unit
    return "weight", "coordinates" if isinstance(game, CoordinateGame) else "repetitions"


def _claims_of(cls: type[Mechanism]) -> Iterator[PlannedMechanismGame]:
    """Yield the games of examples that state what their source claims for a report."""
    for mechanism in cls.examples():
        claimed = getattr(mechanism, "claimed_epsilon", None)
        if claimed is not None:
            for planned in _reports_of(mechanism, _SIZE_OF_CLAIMS, claimed, again=False):
                yield replace(
                    planned,
                    claimed=tuple(
                        claimed if getattr(planned.game, "unit", "") == "client-round" else None
                        for _ in planned.deltas
                    ),
                )


_SIZE_OF_CLAIMS = 8
