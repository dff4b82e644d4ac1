"""Parts that together would reveal too much are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from fedldp.accounting.events import SubsetResponse
from fedldp.algorithms.bounds import InRange, RangeSettings
from fedldp.algorithms.calibration import PerReport
from fedldp.algorithms.channel import Channel
from fedldp.algorithms.composition import Composition, Sgd
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import OwnMean
from fedldp.algorithms.settings import Offers
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import ConfigError
from fedldp.deployment.deployable import check_told, without_simulation
from fedldp.mechanisms.k_closest import KClosest
from fedldp.simulation.plan import plan

PROBLEM = Problem((1, 8, 8), 10, 1437)
SHARED: dict[str, Any] = {
    "dataset": "digits", "model": "linear", "num_clients": 10, "rounds": 4, "learning_rate": 0.1,
}  # fmt: skip


def made(system: str, **settings: Any) -> RunConfig:
    return find_system(system).model_validate({**SHARED, "system": system, **settings})


def lines(config: RunConfig) -> dict[tuple[str, str], Any]:
    guarantees = plan(config, PROBLEM).privacy.guarantees
    return {(line.unit, line.adversary): line.epsilon for line in guarantees}


@pytest.mark.parametrize(
    ("channel", "refused", "remedies"),
    [
        ("sum", "k_closest", {"two_point": "range", "gaussian_share": "norm"}),
        ("shuffle", "laplace", {"two_point": "range", "k_closest": "norm"}),
    ],
)
def test_every_remedy_for_a_channel_works(
    channel: str, refused: str, remedies: dict[str, str]
) -> None:
    given: dict[str, Any] = {"epsilon": 1.0, "channel": channel, "bound": "norm"}
    with pytest.raises(ConfigError, match="set channel = named, or use system = composed") as said:
        made("composed", **given, mechanism=refused)
    assert lines(made("composed", **{**given, "mechanism": refused, "channel": "named"}))
    for mechanism, bound in remedies.items():
        assert mechanism in str(said.value)
        assert lines(made("composed", **{**given, "mechanism": mechanism, "bound": bound}))


@pytest.mark.parametrize("target", [None, {"adversary": "shuffled-server"}])
def test_sites_refuse_a_shuffler(target: dict[str, Any] | None) -> None:
    if target is not None:
        target = {"unit": "client-run", "epsilon": 1.0, "delta": 1e-5, **target}
    config = made(
        "composed", epsilon=1.0, channel="shuffle", mechanism="k_closest", bound="norm",
        target=target,
    )  # fmt: skip
    line = "channel = shuffle and mechanism = k_closest: .* relay .* set channel = named"
    for refuse in (without_simulation, check_told):
        with pytest.raises(ConfigError, match=line) as found:
            refuse(config)
        assert "\n" not in str(found.value)
    with pytest.raises(ConfigError, match=r"channel = shuffle: .* set channel = sum"):
        without_simulation(made("ldp_fl", epsilon=1.0, channel="shuffle"))


class Own(KClosest):
    """A user's own mechanism that misstates its category."""

    name: ClassVar[str] = "own"
    says: ClassVar[dict[str, int] | None]

    def category(self, size: int) -> SubsetResponse | None:
        return None if self.says is None else SubsetResponse(**self.says)


@pytest.mark.parametrize(
    ("says", "line"),
    [
        (None, "a report of 640 values is not one category"),
        (
            {"high": 9, "low": 1, "closest": 3, "categories": 5},
            "closest = 3: give at most 2, half of the 5 categories",
        ),
        (
            {"high": 9, "low": 1, "closest": 1, "categories": 1},
            "categories = 1: give an integer of at least 2",
        ),
        ({"high": 2, "low": 1, "closest": 1, "categories": 4}, "less than its event says"),
    ],
)
def test_a_category_out_of_range_is_refused_before_a_run(
    says: dict[str, int] | None, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Own, "says", says, raising=False)
    config = made("composed", epsilon=1.0, channel="shuffle", mechanism="k_closest", bound="norm")
    encoder = config.algorithm(PROBLEM).encoder(0)
    release = replace(encoder.release, mechanism=Own(1.0, 1.0))
    with pytest.raises(ConfigError, match=line) as found:
        replace(encoder, release=release).event()
    assert "\n" not in str(found.value)


def test_a_shuffler_of_bits_does_not_carry_categories() -> None:
    with pytest.raises(ConfigError, match="channel = shuffle and mechanism = k_closest: its"):
        shuffled.model_validate(SHARED | {"mechanism": "k_closest"})


class Shuffled(Offers):
    mechanism: str = "two_point"
    epsilon: float = 1.0
    clip: float = 1.0
    send: str = "weights"


@preset(Shuffled, RangeSettings)
def shuffled(settings: Settings) -> Composition:
    """A user's own preset whose reports always go through a shuffler."""
    calibration = PerReport(settings=settings)
    return Composition(
        local=Sgd(momentum=0.0),
        bound=InRange.of(settings),
        calibration=calibration,
        channel=Channel.of(settings, "shuffle"),
        estimate=OwnMean(scale=calibration.scale),
    )


def test_a_users_preset_with_a_shuffler_runs_without_it_at_sites() -> None:
    config = shuffled.model_validate(SHARED)
    assert config.composition.channel.kind == "shuffle"
    with pytest.raises(ConfigError, match="a deployment has none; set channel = sum"):
        check_told(config)
    assert without_simulation(config).composition.channel.kind == "named"


def test_a_channel_adds_the_line_of_its_adversary_and_changes_no_other() -> None:
    shared: dict[str, Any] = {"epsilon": 1.0, "participation": "all"}
    named = lines(made("composed", **shared, channel="named"))
    for channel, adversary in (("sum", "summing-server"), ("shuffle", "shuffled-server")):
        found = lines(made("composed", **shared, channel=channel))
        assert {key: found[key] for key in named} == named
        assert {against for _, against in found.keys() - named.keys()} == {adversary}


def test_a_claim_is_quoted_only_for_the_papers_own_algorithm() -> None:
    assert made("ldp_fl", epsilon=1.0).claim() is not None
    assert made("ldp_fl", epsilon=1.0, channel="sum").claim() is None
    balanced = {"participation": "balanced", "clients_per_round": 2}
    assert made("nbafl", epsilon=1.0, clip=1.0).claim() is not None
    assert made("nbafl", epsilon=1.0, clip=1.0, **balanced).claim() is None
