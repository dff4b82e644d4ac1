"""A site's own budget, which the site states and signs before there is an agreement.

The stated budget is public: an agreement with a budget for each site shows all budgets to all
sites. By its signature the site consents to this disclosure and to nothing else. To take part, the
site accepts an agreement; the budget in it must equal the one in the site's policy.

If the server does not need to know the budgets (``stay_at_sites``), the agreement has only the
largest budget that a site may choose.
"""

from __future__ import annotations

from collections.abc import Sequence

from fedldp.accounting.guarantees import Unit
from fedldp.algorithms.calibration import PerRunInSums
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import Delta, Positive, is_own
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import FrozenConfig
from fedldp.deployment.documents import SignedDocument


class OwnBudget(FrozenConfig):
    """The budget that a site spends in a run: the only ``epsilon`` with which it answers.

    Attributes:
        epsilon: the budget, against a server that sees all of the site's reports.
        unit: the unit that the budget protects; a system's proof about its ``epsilon`` must be for
            the same unit.
        delta: the largest delta at which the budget may be spent.
    """

    epsilon: Positive
    unit: Unit = "client-run"
    delta: Delta = 1e-5

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g} per {self.unit} at delta {self.delta:g}"

    def check(self, config: RunConfig, epsilon: float) -> None:
        """Refuse a configuration that would not spend exactly this budget.

        Args:
            config: the configuration of the run.
            epsilon: the configuration's value for the site.

        Raises:
            ConfigError: the run would spend a different budget; the message says what is allowed.
        """
        meaning = config.composition.calibration.meaning
        if meaning is None or meaning.standing != "proven" or meaning.adversary != "server":
            what = "has no such setting" if meaning is None else f"is {meaning}"
            raise ConfigError(
                f"own budget {self}: epsilon of {config.name()} {what}, but a site's own budget "
                "must be proven against the server itself; choose a system whose epsilon is "
                "(fedldp list systems), or leave own budgets out"
            )
        if meaning.unit != self.unit:
            raise ConfigError(
                f"own budget {self}: epsilon of {config.name()} is {meaning}; state a budget with "
                f"unit = {meaning.unit}"
            )
        delta = getattr(config, "client_delta", None) or config.delta
        if epsilon != self.epsilon or delta > self.delta:
            raise ConfigError(
                f"own budget {self}: the run would spend epsilon {epsilon:g} at delta {delta:g}; "
                "ask for an agreement with the budget that the site stated"
            )


class SignedBudget(SignedDocument):
    """A site's own budget with its signature, by which it consents to showing it to all sites.

    Attributes:
        budget: the stated budget.
    """

    kind = "own_budget"
    what = "budget"

    budget: OwnBudget


def stay_at_sites(config: RunConfig) -> bool:
    """Return whether each site keeps its budget to itself: no agreement or message contains it."""
    return isinstance(config.composition.calibration, PerRunInSums)


def largest_alone(config: RunConfig) -> dict[str, float]:
    """Return a dictionary with the setting ``epsilon`` that everybody sees.

    The dictionary is empty unless each site keeps its own epsilon to itself.
    """
    calibration = config.composition.calibration
    return {"epsilon": calibration.largest} if isinstance(calibration, PerRunInSums) else {}


def check_owners(keys: Sequence[str], budgets: Sequence[SignedBudget]) -> None:
    """Refuse budgets that are not those of a roster's sites, in its order."""
    if [each.key for each in budgets] != [*keys]:
        raise ConfigError(
            "budgets: they do not match the roster's sites; let each site state one (fedldp deploy "
            "join --epsilon), or none"
        )


def check_budgets(config: RunConfig, keys: Sequence[str], budgets: Sequence[SignedBudget]) -> None:
    """Refuse per-site values that a site did not consent to show.

    Args:
        config: the configuration of the run.
        keys: the roster's keys, in order.
        budgets: the sites' budgets in the same order; empty if all sites share one value.

    Raises:
        ConfigError: a site did not consent, or the budgets do not match the roster or the
            configuration.
    """
    if stay_at_sites(config):
        if budgets:
            raise ConfigError(
                "budgets: with channel = sum each site's budget stays in its policy; leave them out"
            )
        if {"epsilon": config.model_dump()["epsilon"]} != largest_alone(config):
            raise ConfigError(
                "epsilon: each site keeps its choice to itself; make a new agreement, with "
                "largest_epsilon alone"
            )
    own = [name for name in config.per_client if is_own(getattr(config, name))]
    for name in own:
        if name not in ("epsilon", "turns"):
            raise ConfigError(
                f"{name} has a value for each client, and no site consented to show its value to "
                f"all: a site can state its own budget, but not its {name}; give one value for "
                "all sites"
            )
    if "epsilon" not in own:
        if budgets:
            raise ConfigError("budgets: epsilon is one value for all sites; leave the budgets out")
        return
    if not budgets:
        raise ConfigError(
            "epsilon has a value for each client, and all sites would see all values, so each "
            "site must consent; give one value for all, or let each site state its own (fedldp "
            "deploy join --epsilon)"
        )
    check_owners(keys, budgets)
    epsilons = getattr(config, "epsilon")  # noqa: B009 (not all systems have it)
    if not isinstance(epsilons, list) or len(epsilons) != len(keys):
        raise ConfigError(
            "epsilon: the list does not have one value for each site of the roster; make a new "
            "agreement"
        )
    for each, epsilon in zip(budgets, epsilons, strict=True):
        if not each.is_signed:
            raise ConfigError(
                f"budgets: the site with key {each.key[:16]} did not sign its own budget; refuse "
                "this agreement"
            )
        each.budget.check(config, epsilon)
