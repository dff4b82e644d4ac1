"""Configurations at a given epsilon, and what their statements prove."""

from __future__ import annotations

from dataclasses import dataclass

from fedldp.accounting.guarantees import Adversary, Unit
from fedldp.accounting.proven import Proven
from fedldp.accounting.statement import Statement
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import PrivacyTarget
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.reporting import words
from fedldp.simulation.plan import plan

BUDGETS = ("epsilon", "alpha", "noise_multiplier")
"""The budgets that can be solved for to meet a target; a system has only one of them."""


@dataclass(frozen=True)
class GuaranteeKind:
    """A kind of guarantee, without an epsilon.

    Attributes:
        unit: the protected unit.
        adversary: the adversary.
        delta: the largest delta.
    """

    unit: Unit
    adversary: Adversary
    delta: float

    def target(self, epsilon: float) -> PrivacyTarget:
        """Return the target of a run that must meet ``epsilon``."""
        return PrivacyTarget(
            unit=self.unit, epsilon=epsilon, delta=self.delta, adversary=self.adversary
        )


class ComparisonError(FedldpError):
    """A run must not be included in a comparison's results."""


class Budgets:
    """Solved budgets, each computed only once."""

    def __init__(self) -> None:
        self._found: dict[tuple[str, Problem], dict[str, float]] = {}

    def calibrated(self, config: RunConfig, problem: Problem) -> RunConfig:
        """Return a configuration without a target, whose budget meets the target.

        The same budget is assumed for every learning rate, and for every seed if all clients take
        part in each round; ``checked`` reads the statement of the run itself.

        Args:
            config: the configuration; without a target, it is returned unchanged.
            problem: the shape of the data.

        Raises:
            ConfigError: no budget meets it, or the settings are incompatible.
        """
        if config.target is None:
            return config
        if not any(hasattr(config, name) for name in BUDGETS):
            raise ConfigError(
                f"{config.name()} has no guarantee and no epsilon to solve for; leave it out, or "
                "show it as a reference, with reference = true in a compare file"
            )
        alike = alike_in_privacy(config)
        key = (alike.model_dump_json(), problem)
        if key not in self._found:
            try:
                found = plan(alike, problem).config
            except ConfigError:
                plan(
                    alike.changed(target=None), problem
                )  # if no budget works, this call raises an error with the reason
                raise
            self._found[key] = {
                name: getattr(found, name) for name in BUDGETS if hasattr(found, name)
            }
        return config.changed(target=None, **self._found[key])


def alike_in_privacy(config: RunConfig) -> RunConfig:
    """Return what is alike in the configurations of runs that release the same.

    Learning rates differ, and seeds do too if all clients take part in each round.
    """
    takes_steps = getattr(config, "learning_rate", None) is not None
    alike = config.changed(learning_rate=1.0) if takes_steps else config
    return alike.changed(seed=0) if config.round_size == config.num_clients else alike


def proven(privacy: Statement, kind: GuaranteeKind | PrivacyTarget) -> Proven:
    """Return what a statement proves for a kind of guarantee: its smallest epsilon.

    Lines for the numbers that are sent take precedence over lines for real arithmetic.

    Args:
        privacy: the statement.
        kind: the unit, the adversary, and the largest allowed delta.

    Raises:
        ConfigError: the statement proves nothing; the message says why.
    """
    lines = [
        line
        for line in privacy.guarantees
        if (line.unit, line.adversary) == (kind.unit, kind.adversary) and line.delta <= kind.delta
    ]
    real = [line for line in lines if not line.is_idealised] or lines
    known = [line for line in real if line.epsilon is not None]
    if not known or len(known) < len(real):
        why = "; ".join(map(words.method_of, real)) or _what_it_has(privacy)
        what = words.names("unit")[kind.unit]
        raise ConfigError(f"no guarantee for {what} against the {kind.adversary}: {why}")
    return min((Proven.of_line(line, privacy) for line in known), key=lambda found: found.size)


def _what_it_has(privacy: Statement) -> str:
    """Return the guarantees that a statement has instead of the requested one."""
    found = dict.fromkeys(
        f"{line.unit}:{line.adversary}" for line in privacy.guarantees if line.epsilon is not None
    )
    return (
        f"its statement has {', '.join(found) or 'none'}; leave the contestant out, or compare by "
        "a guarantee that it has"
    )


def checked(target: PrivacyTarget, privacy: Statement) -> Proven:
    """Return what is proven for a run; epsilon and delta must not exceed the run's target.

    Raises:
        ComparisonError: the proven epsilon or delta is larger.
        ConfigError: nothing is proven.
    """
    found = proven(privacy, target)
    if not found.size <= target.epsilon or found.delta > target.delta:
        raise ComparisonError(
            f"the statement proves epsilon {found.epsilon!r} at delta {found.delta:g}, above its "
            f"label {target.epsilon:g}"
        )
    return found
