"""A budget of each site's own: what a site says of it, signed, before an agreement is made.

What is said is public: an agreement that has a budget for each site shows all of them to all sites.
The signature by the site's identity is its consent to that, and nothing more: to take part is to
accept an agreement, whose budget for the site must then be that of its policy.

Where the server need not know them (``stay_at_sites``), budgets stand in no agreement, but for the
largest that a site may choose.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Literal

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedldp.algorithms.calibration import PerRunInSums
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.per_client import is_own
from fedldp.algorithms.settings import Delta, Positive, TargetUnit
from fedldp.core.errors import ConfigError
from fedldp.core.frozen_config import FrozenConfig
from fedldp.deployment.identity import is_signed

_PURPOSE = b"fedldp own budget\n"
_LARGEST = 1 << 16
"""Bytes of a budget's file."""

Key = Annotated[str, Field(pattern=r"^[0-9a-f]{64}$")]
Signature = Annotated[str, Field(pattern=r"^[0-9a-f]{128}$")]


class OwnBudget(FrozenConfig):
    """What a site spends in a run: the only ``epsilon`` that it answers with.

    Attributes:
        epsilon: of the budget, against a server that sees all of the site's reports.
        unit: what it is the budget of; what a system proves of its ``epsilon`` must be of this.
        delta: the largest at which it may be spent.
    """

    epsilon: Positive
    unit: TargetUnit = "client-run"
    delta: Delta = 1e-5

    def __str__(self) -> str:
        return f"epsilon {self.epsilon:g} per {self.unit} at delta {self.delta:g}"

    def check(self, config: RunConfig, epsilon: float) -> None:
        """Refuse a configuration that would spend something else.

        Args:
            config: of the run.
            epsilon: that it has for the site.

        Raises:
            ConfigError: it would; the line says what is allowed.
        """
        meaning = config.composition.calibration.meaning
        if meaning is None or meaning.standing != "proven" or meaning.adversary != "server":
            what = "has no such setting" if meaning is None else f"is {meaning}"
            raise ConfigError(
                f"own budget {self}: epsilon of {config.name()} {what}, and a site's own is one "
                "that is proven against the server itself; take system = personalized_sound, or "
                "leave own budgets out"
            )
        if meaning.unit != self.unit:
            raise ConfigError(
                f"own budget {self}: epsilon of {config.name()} is {meaning}; state one of unit = "
                f"{meaning.unit}"
            )
        delta = getattr(config, "client_delta", None) or config.delta
        if epsilon != self.epsilon or delta > self.delta:
            raise ConfigError(
                f"own budget {self}: the run would spend epsilon {epsilon:g} at delta {delta:g}; "
                "ask for an agreement with the budget that the site states"
            )


class SignedBudget(BaseModel):
    """A site's own budget with its signature.

    Attributes:
        key: the site's public identity.
        epsilon, unit, delta: see ``OwnBudget``.
        signature: of all that by the identity, Ed25519.
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
        """What is said."""
        return OwnBudget(epsilon=self.epsilon, unit=self.unit, delta=self.delta)

    @property
    def is_consent(self) -> bool:
        """Whether the holder of ``key`` signed it."""
        return is_signed(self.key, bytes.fromhex(self.signature), to_sign(self.key, self.budget))

    def to_bytes(self) -> bytes:
        """Return it for a file."""
        return json.dumps(self.model_dump(), indent=1, sort_keys=True).encode() + b"\n"


def to_sign(key: str, budget: OwnBudget) -> bytes:
    """Return what a site signs to let its budget be told to all sites."""
    said = {"key": key, **budget.model_dump()}
    return _PURPOSE + json.dumps(said, sort_keys=True, separators=(",", ":")).encode()


def signed_budget(private: Ed25519PrivateKey, budget: OwnBudget) -> SignedBudget:
    """Return a site's budget, signed by its identity."""
    key = private.public_key().public_bytes_raw().hex()
    signature = private.sign(to_sign(key, budget)).hex()
    return SignedBudget(key=key, signature=signature, **budget.model_dump())


def read_budget(path: Path) -> SignedBudget:
    """Return the budget in a file, whose signature is right.

    Raises:
        ConfigError: there is none, or its site did not sign it.
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
            f"budget {path}: this is no file of `fedldp deploy budget`, or is damaged; ask for it "
            "again"
        ) from error
    if not found.is_consent:
        raise ConfigError(f"budget {path}: its site did not sign this; ask the site for it again")
    return found


def stay_at_sites(config: RunConfig) -> bool:
    """Return whether each site has a budget that is in no agreement, and in no message."""
    return isinstance(config.composition.calibration, PerRunInSums)


def largest_alone(config: RunConfig) -> dict[str, float]:
    """Return the setting ``epsilon`` for all to see, where each site's own stays with it."""
    calibration = config.composition.calibration
    return {"epsilon": calibration.largest} if isinstance(calibration, PerRunInSums) else {}


def check_budgets(config: RunConfig, keys: list[str], budgets: tuple[SignedBudget, ...]) -> None:
    """Refuse values of each site's own that not all sites let be told.

    Args:
        config: of the run.
        keys: of the roster, in its order.
        budgets: likewise; none where all sites have one.

    Raises:
        ConfigError: there is one without consent.
    """
    if stay_at_sites(config):
        if budgets:
            raise ConfigError(
                "budgets: with channel = sum each site's budget stays in its policy; leave them out"
            )
        if {"epsilon": config.model_dump()["epsilon"]} != largest_alone(config):
            raise ConfigError(
                "epsilon: what a site chooses stays with it; agree anew, with largest_epsilon alone"
            )
    own = [name for name in config.per_client if is_own(getattr(config, name))]
    for name in own:
        if name not in ("epsilon", "turns"):
            raise ConfigError(
                f"{name} has a value for each client: a site states a budget of its own, and no "
                f"{name}, so that all sites would be told what none has agreed to; give one for all"
            )
    if "epsilon" not in own:
        if budgets:
            raise ConfigError("budgets: epsilon is one for all sites; leave the budgets out")
        return
    if not budgets:
        raise ConfigError(
            "epsilon has a value for each client: all sites would be told all of them, which each "
            "must agree to; give one for all, or the file of each site's own "
            "(`fedldp deploy budget` at the site, `fedldp deploy agree --budget FILE`)"
        )
    if [each.key for each in budgets] != keys:
        raise ConfigError("budgets: they are not those of the roster's sites; give one of each")
    epsilons = getattr(config, "epsilon")  # noqa: B009 (not all systems have it)
    if not isinstance(epsilons, list) or len(epsilons) != len(keys):
        raise ConfigError("epsilon: it is not one for each site of the roster; agree anew")
    for each, epsilon in zip(budgets, epsilons, strict=True):
        if not each.is_consent:
            raise ConfigError(
                f"budgets: the site with key {each.key[:16]} did not sign its own; refuse this"
            )
        each.budget.check(config, epsilon)
