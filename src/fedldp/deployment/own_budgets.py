"""A site's own budget, which the site states in its signed answer to an invite.

The stated budget is public: an agreement with a budget for each site has the answers of all sites.
By stating one the site consents to this disclosure and to nothing else, and each site checks that
all others did. To take part, the site accepts an agreement; the budget in it must equal the one in
the site's policy.

If the server need not know the budgets (``stay_at_sites``), no other party learns them: the
agreement has the largest budget that a site may choose, and its statement holds for all.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Annotated, Self

from pydantic import Field, ValidationError

from fedldp.accounting.guarantees import Unit
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import Delta, Positive, is_own
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import FrozenConfig
from fedldp.deployment.documents import SITE_NAME, Hex, SignedDocument, check_version


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

    @classmethod
    def of(cls, config: RunConfig, epsilon: float) -> Self:
        """Return the budget that a site spends if a run has this ``epsilon`` for it.

        Raises:
            ConfigError: ``epsilon`` is no budget.
        """
        meaning = config.composition.calibration.meaning
        unit = "client-run" if meaning is None else meaning.unit
        try:
            return cls.model_validate(
                {"epsilon": epsilon, "unit": unit, "delta": _delta_of(config)}
            )
        except ValidationError as error:
            raise ConfigError(f"epsilon = {epsilon:g}: give a number above 0") from error

    def check(self, config: RunConfig, epsilon: object) -> None:
        """Refuse a configuration that would not spend exactly this budget.

        Args:
            config: the configuration of the run.
            epsilon: the configuration's value for the site.

        Raises:
            ConfigError: the run would spend a different budget; the message says what is allowed.
        """
        meaning = config.composition.calibration.meaning
        if (
            meaning is None
            or not isinstance(epsilon, float)
            or (meaning.standing, meaning.adversary) != ("proven", "server")
        ):
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
        delta = _delta_of(config)
        most = config.model_dump()["epsilon"]
        if stay_at_sites(config) and self.epsilon > most:
            raise ConfigError(
                f"own budget {self}: the run states epsilon {most:g} for all sites, so none may "
                "choose more; choose less, or ask for a run that states more"
            )
        if epsilon != self.epsilon or delta > self.delta:
            raise ConfigError(
                f"own budget {self}: the run would spend epsilon {epsilon:g} at delta {delta:g}; "
                "ask for an agreement with the budget that the site stated"
            )


class Joining(SignedDocument):
    """A site's answer to an invite.

    Attributes:
        version: the version of fedldp that made the answer.
        invite: the digest of the invite that it answers, in hexadecimal.
        name: the name of the site.
        own: the site's own budget, if all sites are told it, with the answer.
    """

    kind = "join"
    what = "join file"

    version: str
    invite: Hex
    name: Annotated[str, Field(pattern=SITE_NAME)]
    own: OwnBudget | None = None

    def check_read(self, own: Container[str] | None) -> None:
        """Refuse an answer of another version, or that is not signed by its key."""
        check_version(self.version)
        super().check_read(own)


def stay_at_sites(config: RunConfig) -> bool:
    """Return whether no party but the site need know its own budget."""
    return config.composition.calibration.largest is not None


def has_own_budgets(config: RunConfig) -> bool:
    """Return whether ``epsilon`` has a value for each site."""
    return "epsilon" in config.per_client and is_own(config.model_dump()["epsilon"])


def _delta_of(config: RunConfig) -> float:
    found = config.model_dump().get("client_delta")
    return found if isinstance(found, float) else config.delta
