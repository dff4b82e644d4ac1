"""The systems of the study, each with how its settings follow from one try of the grid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from fedldp.accounting.guarantees import Adversary
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.presets.central_dp import central_dp
from fedldp.algorithms.presets.cldp_fed import cldp_fed
from fedldp.algorithms.presets.distributed_gaussian import distributed_gaussian
from fedldp.algorithms.presets.dp_sgd import dp_sgd
from fedldp.algorithms.presets.fedavg import fedavg
from fedldp.algorithms.presets.ldp_fl import ldp_fl
from fedldp.algorithms.presets.ldpfl import ldpfl
from fedldp.algorithms.presets.ldpfl_sound import ldpfl_sound
from fedldp.algorithms.presets.nbafl import nbafl
from fedldp.algorithms.presets.personalized import personalized
from fedldp.algorithms.presets.personalized_sound import personalized_sound
from fedldp.algorithms.presets.priority import priority
from fedldp.algorithms.presets.priority_public import priority_public
from fedldp.algorithms.presets.privunit_fl import privunit_fl
from fedldp.algorithms.presets.secure_aggregation import secure_aggregation
from fedldp.comparing import Contestant, GuaranteeKind, Try

Settings = dict[str, Any]

DELTA = 1e-5


def tried(rounds: int, reach: float, rate: float) -> Try:
    """Return one point of the grid.

    Args:
        rounds: of the run.
        reach: the bound on what a client sends in a round, in the unit of its system.
        rate: the learning rate, in the unit of its system.
    """
    return {"rounds": rounds, "reach": reach, "rate": rate}


GRID = (
    tried(1, 1.0, 1.0), tried(1, 3.0, 1.0), tried(1, 1.0, 0.25),
    tried(4, 0.5, 1.0), tried(4, 1.5, 1.0), tried(4, 0.5, 0.25),
    tried(16, 0.25, 1.0), tried(16, 1.0, 1.0),
)  # fmt: skip
"""More rounds take shorter steps: what they go together is 1 to 16 units."""

RATES = (
    tried(1, 1.0, 1.0), tried(4, 1.0, 0.25), tried(4, 1.0, 1.0), tried(4, 1.0, 4.0),
    tried(16, 1.0, 0.0625), tried(16, 1.0, 0.25), tried(16, 1.0, 1.0), tried(16, 1.0, 4.0),
)  # fmt: skip
"""Of systems whose reports have no bound that could be chosen: as many, of rounds and rates."""

RATE = 0.4
"""The unit of the learning rate."""


@dataclass(frozen=True, kw_only=True)
class System(Contestant):
    """One system of the study.

    Attributes:
        rank: the lower, the sooner it is measured: 2 for what a better one of its kind stands for.
        only: the tasks that it can do; all where it is None.
    """

    rank: int = 1
    only: frozenset[str] | None = None

    @property
    def against(self) -> Adversary:
        """Whom its guarantee for a client's run is about."""
        return self.guarantee.adversary


def _system(
    name: str,
    against: Adversary,
    make: Callable[[Settings, float], RunConfig],
    *,
    grid: tuple[Try, ...] = GRID,
    rate: float = RATE,
    **others: Any,
) -> System:
    """Return one system.

    Args:
        name: for people.
        against: whom its guarantee for a client's run is about.
        make: its configuration of the shared settings and of a bound in units of the grid.
        grid: its tries.
        rate: the unit of its learning rate.
        others: of its attributes.
    """

    def configure(shared: Mapping[str, Any], attempt: Try) -> RunConfig:
        own = {"rounds": attempt["rounds"], "learning_rate": rate * attempt["rate"]}
        return make({**shared, **own}, attempt["reach"])

    guarantee = GuaranteeKind("client-run", against, DELTA)
    return System(name=name, configure=configure, tries=grid, guarantee=guarantee, **others)


def _ldp_fl(mechanism: str, *, clip: float = 1.0, radius: float | None = None) -> Any:
    """Return what makes LDP-FL; ``clip`` of the norm where ``radius`` is None."""

    def make(shared: Settings, reach: float) -> RunConfig:
        bounds: Settings = (
            {"range_radius": 1.0, "clip": clip * reach}
            if radius is None
            else {"range_radius": radius * reach, "clip": clip}
        )
        return ldp_fl(
            **shared, **bounds, mechanism=mechanism, epsilon=1.0, send="update", shuffle=False
        )

    return make


def _summed_bits(shared: Settings, reach: float) -> RunConfig:
    return ldp_fl(
        **shared, mechanism="two_point", epsilon=1.0, send="update", channel="sum",
        range_radius=0.05 * reach,
    )  # fmt: skip


def _personalized_sound(report: Literal["gaussian", "sign"]) -> Any:
    def make(shared: Settings, reach: float) -> RunConfig:
        return personalized_sound(**shared, epsilon=1.0, clip=reach, report=report)

    return make


def _sound_ldpfl(shared: Settings, reach: float) -> RunConfig:
    own = {**shared, "model": "logistic", "batch_size": 1_000_000}
    return ldpfl_sound(**own, epsilon=1.0)


CONTESTANTS = (
    _system(
        "FedAvg, no noise",
        "server",
        lambda shared, reach: fedavg(**shared),
        grid=RATES,
        role="reference",
        rank=0,
    ),
    _system(
        "central_dp",
        "downlink",
        lambda shared, reach: central_dp(**shared, noise_multiplier=1.0, clip=reach),
        rank=0,
    ),
    _system(
        "distributed_gaussian",
        "summing-server",
        lambda shared, reach: distributed_gaussian(**shared, epsilon=1.0, clip=reach),
        rank=0,
    ),
    _system("ldp_fl, privunit", "server", _ldp_fl("privunit"), rank=0),
    _system("ldp_fl, gaussian", "server", _ldp_fl("gaussian"), rank=0),
    _system("ldp_fl, piecewise", "server", _ldp_fl("piecewise", radius=0.1)),
    _system("ldp_fl, two_point", "server", _ldp_fl("two_point", radius=0.05)),
    _system(
        "ldp_fl, two_point, bits in a secure sum",
        "summing-server",
        _summed_bits,
        quick_to_state=False,
    ),
    _system(
        "privunit_fl",
        "server",
        lambda shared, reach: privunit_fl(**shared, epsilon=1.0, clip=reach),
    ),
    _system("ldp_fl, nearest_direction", "server", _ldp_fl("nearest_direction")),
    _system(
        "ldpfl_sound",
        "server",
        _sound_ldpfl,
        grid=RATES,
        rate=5.0,
        only=frozenset({"mnist-gradients"}),
        data_of="mnist",
    ),
    _system("ldp_fl, two_point_l1", "server", _ldp_fl("two_point_l1", clip=4.0, radius=0.3)),
    _system("ldp_fl, laplace", "server", _ldp_fl("laplace", clip=2.0)),
    _system(
        "personalized_sound",
        "server",
        _personalized_sound("gaussian"),
        rate=RATE / 4,
        rank=2,
    ),
    _system(
        "personalized_sound, signs",
        "server",
        _personalized_sound("sign"),
        rate=RATE / 4,
        rank=2,
    ),
    _system(
        "priority_public",
        "server",
        lambda shared, reach: priority_public(
            **shared, epsilon=1.0, clip=reach, noise_ratio=2.0, noisier_share=0.4
        ),
        rank=2,
        only=frozenset({"mnist", "mnist-gradients", "mnist-convolutions", "covertype"}),
    ),
    _system(
        "nbafl",
        "server",
        lambda shared, reach: nbafl(**shared, epsilon=1.0, clip=reach, send="update"),
        rank=2,
    ),
    _system(
        "cldp_fed",
        "server",
        lambda shared, reach: cldp_fed(**shared, alpha=1.0, clip=0.05 * reach, precision=2),
        rank=2,
    ),
    _system("ldp_fl, sign", "server", _ldp_fl("sign", radius=0.05), rank=2),
    _system(
        "personalized, dp-sign",
        "server",
        lambda shared, reach: personalized(
            **shared, epsilon=1.0, clip=0.1 * reach, perturbation="sign"
        ),
        rate=RATE / 4,
        rank=2,
    ),
)

UNPROTECTED = (
    _system(
        "ldpfl",
        "server",
        lambda shared, reach: ldpfl(**shared, epsilon=1.0, encoder_padding=True),
        role="stated",
    ),
    _system(
        "priority",
        "server",
        lambda shared, reach: priority(
            **shared, epsilon_low=1.0, epsilon_high=1.0, clip=reach, send="update",
            noisier_share=0.4,
        ),
        role="stated",
    ),
    _system(
        "dp_sgd",
        "server",
        lambda shared, reach: dp_sgd(**shared, noise_multiplier=1.0),
        role="stated",
    ),
    _system(
        "secure_aggregation",
        "server",
        lambda shared, reach: secure_aggregation(**shared),
        role="stated",
    ),
)  # fmt: skip
"""Systems without a guarantee for a client's run, whatever their settings: their rows say why."""

BY_NAME = {contestant.name: contestant for contestant in (*CONTESTANTS, *UNPROTECTED)}
