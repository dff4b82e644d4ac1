"""A site's own budget, which the site states and signs before there is an agreement.

The stated budget is public: an agreement with a budget for each site shows all budgets to all
sites. By its signature the site consents to this disclosure and to nothing else. To take part, the
site accepts an agreement; the budget in it must equal the one in the site's policy.

If the server does not need to know the budgets (``stay_at_sites``), the agreement has only the
largest budget that a site may choose.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedldp.algorithms.calibration import PerRunInSums
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.settings import Delta, Positive, TargetUnit, is_own
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import FrozenConfig
from fedldp.deployment.identity import is_signed

_PURPOSE = b"fedldp own budget\n"
_LARGEST = 1 << 16
"""The largest permitted size of a budget's file, in bytes."""

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class OwnBudget(FrozenConfig):
    """The budget that a site spends in a run: the only ``epsilon`` with which it answers.

    Attributes:
        epsilon: the budget, against a server that sees all of the site's reports.
        unit: the unit that the budget protects; a system's proof about its ``epsilon`` must be for
            the same unit.
        delta: the largest delta at which the budget may be spent.
    """

    epsilon: Positive
    unit: TargetUnit = "client-run"
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


class SignedBudget(BaseModel):
    """A site's own budget with its signature.

    Attributes:
        key: the site's public identity.
        epsilon, unit, delta: see ``OwnBudget``.
        signature: the Ed25519 signature of all these fields, by ``key``.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    own_budget: Literal[1] = 1
    key: Key
    epsilon: Positive
    unit: TargetUnit
    delta: Delta
    signature: Signature

    @property
    def budget(self) -> OwnBudget:
        """The stated budget."""
        return OwnBudget(epsilon=self.epsilon, unit=self.unit, delta=self.delta)

    @property
    def is_consent(self) -> bool:
        """Whether the holder of ``key`` signed this budget."""
        return is_signed(self.key, bytes.fromhex(self.signature), to_sign(self.key, self.budget))

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        return json.dumps(self.model_dump(), indent=1, sort_keys=True).encode() + b"\n"


def to_sign(key: str, budget: OwnBudget) -> bytes:
    """Return what a site signs to consent to showing its budget to all sites."""
    said = {"key": key, **budget.model_dump()}
    return _PURPOSE + json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def signed_budget(private: Ed25519PrivateKey, budget: OwnBudget) -> SignedBudget:
    """Return a site's budget, signed by its identity."""
    key = private.public_key().public_bytes_raw().hex()
    signature = private.sign(to_sign(key, budget)).hex()
    return SignedBudget(key=key, signature=signature, **budget.model_dump())


def read_budget(path: Path) -> SignedBudget:
    """Return the budget in a file, if its signature is valid.

    Raises:
        ConfigError: the file has no budget, or its site did not sign it.
    """
    try:
        with path.open("rb") as file:
            content = file.read(_LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"budget {path}: {error.strerror}; check the path") from error
    try:
        if len(content) > _LARGEST:
            raise ValueError
        found = SignedBudget.model_validate(json.loads(content))
    except (ValueError, RecursionError, ValidationError) as error:
        raise ConfigError(
            f"budget {path}: this file was not written by `fedldp deploy budget`, or it is "
            "damaged; ask for it again"
        ) from error
    if not found.is_consent:
        raise ConfigError(f"budget {path}: it is not signed by its site; ask the site for it again")
    return found


def stay_at_sites(config: RunConfig) -> bool:
    """Return whether each site keeps its budget to itself: no agreement or message contains it."""
    return isinstance(config.composition.calibration, PerRunInSums)


def largest_alone(config: RunConfig) -> dict[str, float]:
    """Return a dictionary with the setting ``epsilon`` that everybody sees.

    The dictionary is empty unless each site keeps its own epsilon to itself.
    """
    calibration = config.composition.calibration
    return {"epsilon": calibration.largest} if isinstance(calibration, PerRunInSums) else {}


def check_budgets(config: RunConfig, keys: list[str], budgets: tuple[SignedBudget, ...]) -> None:
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
            "site must consent; give one value for all, or the file of each site's budget "
            "(`fedldp deploy budget` at the site, `fedldp deploy agree --budget FILE`)"
        )
    if [each.key for each in budgets] != keys:
        raise ConfigError("budgets: they do not match the roster's sites; give one for each site")
    epsilons = getattr(config, "epsilon")  # noqa: B009 (not all systems have it)
    if not isinstance(epsilons, list) or len(epsilons) != len(keys):
        raise ConfigError(
            "epsilon: the list does not have one value for each site of the roster; make a new "
            "agreement"
        )
    for each, epsilon in zip(budgets, epsilons, strict=True):
        if not each.is_consent:
            raise ConfigError(
                f"budgets: the site with key {each.key[:16]} did not sign its own budget; refuse "
                "this agreement"
            )
        each.budget.check(config, epsilon)
