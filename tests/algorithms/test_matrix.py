"""Parts that together would reveal too much are refused."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from fedldp.accounting.events import SubsetResponse
from fedldp.algorithms.bounds import RANGES, InRange
from fedldp.algorithms.channel import SHUFFLER, Shuffle
from fedldp.algorithms.composition import Composition, OwnMean, Sgd
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.per_report import INTEGER_BITS, MECHANISM, PerReport
from fedldp.algorithms.preset import Settings, preset
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.settings import CLIP, Offer
from fedldp.algorithms.systems import find_system
from fedldp.core.errors import ConfigError
from fedldp.deployment.deployable import check_told, without_simulation
from fedldp.mechanisms.k_closest import KClosest
from fedldp.simulation.plan import plan

PROBLEM = Problem((1, 8, 8), 10, 1437)
SHARED: dict[str, Any] = {
    "dataset": "digits", "model": "linear", "num_clients": 10, "rounds": 4, "learning_rate": 0.1,
}  # fmt: skip

PEOPLE: dict[str, Any] = {
    "local_update": "person_gradients", "mechanism": "integer_gaussian", "epsilon": 1.0,
}  # fmt: skip


def made(system: str, **settings: Any) -> RunConfig:
    return find_system(system).model_validate({**SHARED, "system": system, **settings})


def lines(config: RunConfig) -> dict[tuple[str, str], Any]:
    guarantees = plan(config, PROBLEM).privacy["guarantees"]
    return {(line["unit"], line["adversary"]): line["epsilon"] for line in guarantees}


@pytest.mark.parametrize(
    ("system", "settings", "line"),
    [
        # The line for broadcasts needs a secret sample; when clients take turns, their rounds are
        # known.
        (
            "central_dp",
            {"noise_multiplier": 4.0, "clip": 1.0, "clients_per_round": 2,
             "participation": "balanced"},
            "channel = central and participation = balanced: .* set participation = all",
        ),
        # A report that carries its own budget cannot be summed, so no sum hides it.
        (
            "ldp_fl",
            {"epsilon": [1.0] * 10, "channel": "sum"},
            "channel = sum and epsilon is a list: .* set channel = named",
        ),
        # The randomiser of client 0 would read all reports.
        (
            "composed",
            {"epsilon": [0.2] * 5 + [8.0] * 5, "weighting": "examples"},
            "weighting = examples and epsilon is a list: .* set weighting = uniform",
        ),
        (
            "composed",
            {"mechanism": "codes", "channel": "sum", "untrusted_clients": 3},
            "untrusted_clients = 3: no line",
        ),
        (
            "composed",
            {"epsilon": 1.0, "channel": "shuffle", "mechanism": "laplace", "bound": "norm"},
            "channel = shuffle and mechanism = laplace: .* or set channel = named",
        ),
        # Here what other systems set with several settings are values of one setting.
        (
            "composed",
            {"epsilon": 1.0, "channel": "sum", "mechanism": "gaussian", "bound": "norm"},
            "channel = sum and mechanism = gaussian: .* use mechanism = gaussian_share with "
            "bound = norm, or set channel = named",
        ),
        (
            "composed",
            {"channel": "sum", "mechanism": "none"},
            "channel = sum and mechanism = none: .* use mechanism = codes, or",
        ),
        # Exact sums over people take only their own noise, and this noise fits only these sums.
        (
            "composed",
            {"local_update": "person_gradients", "epsilon": 1.0},
            "local_update = person_gradients and mechanism = two_point: .* set mechanism = "
            "integer_gaussian",
        ),
        (
            "composed",
            {"mechanism": "integer_gaussian", "epsilon": 1.0},
            "mechanism = integer_gaussian and local_update = sgd: .* or mechanism = gaussian with "
            "bound = norm",
        ),
        (
            "composed",
            {**PEOPLE, "channel": "shuffle"},
            "channel = shuffle and mechanism = integer_gaussian: [^;]*; set channel = named$",
        ),
        (
            "composed",
            {**PEOPLE, "channel": "central", "clients_per_round": 2},
            "channel = central and participation = balanced: .* set participation = all",
        ),
        (
            "composed",
            {**PEOPLE, "channel": "sum", "participation": "once", "rounds": 10},
            "the sum of one report hides nothing; set participation = all",
        ),
        ("composed", {**PEOPLE, "weighting": "examples"}, "private; set weighting = uniform"),
        ("composed", {**PEOPLE, "one_label": True}, "leave one_label out"),
        ("composed", {**PEOPLE, "epsilon": None}, "needs a budget; give one$"),
        ("composed", {**PEOPLE, "epsilon": [1.0] * 10}, "one budget for all clients"),
        ("composed", {**PEOPLE, "learning_rate": None}, "learning_rate is not set"),
        ("composed", {**PEOPLE, "clip": 1e5}, "clip = 100000 .* give a clip from 0.0001 to 10000"),
        ("composed", {**PEOPLE, "send": "weights"}, "send = weights: .* leave it out"),
        ("composed", {**PEOPLE, "bound": "norm"}, "bound = norm: .* leave it out"),
        (
            "composed",
            {"epsilon": 1.0, "steps_per_round": 2},
            "steps_per_round = 2: local_update = sgd computes no gradients per person",
        ),
        # Each category could be hidden, but all of them together are a fingerprint.
        (
            "composed",
            {"epsilon": 1.0, "channel": "shuffle", "mechanism": "k_rr"},
            "channel = shuffle and mechanism = k_rr: .* use mechanism = k_closest",
        ),
        # Reports with other budgets have other weights, so they hide nobody.
        (
            "composed",
            {"epsilon": [1.0] * 10, "channel": "shuffle", "mechanism": "k_closest",
             "bound": "norm"},
            "epsilon is a list, but k_closest takes one budget for all clients; give one number",
        ),
        (
            "composed",
            {"epsilon": 1.0, "channel": "shuffle", "mechanism": "k_closest", "bound": "norm",
             "weighting": "examples"},
            "channel = shuffle and weighting = examples: .* set channel = named",
        ),
        (
            "composed",
            {"epsilon": 1.0, "channel": "shuffle", "mechanism": "k_closest", "bound": "norm",
             "chunk": 2},
            "chunk = 2: whole reports are shuffled once all reports of a round have arrived",
        ),
        (
            "personalized_sound",
            {"epsilon": 1.0, "clip": 1.0, "report": "sign", "channel": "shuffle"},
            "channel = shuffle and mechanism = gaussian_sign: its bits come from a vector",
        ),
        (
            "personalized_sound",
            {"epsilon": 1.0, "clip": 1.0, "selects_first": True, "participation": "drawn"},
            "participation = drawn and selects_first = true",
        ),
        ("ldp_fl", {"epsilon": 1.0, "shuffle": True, "channel": "sum"}, "leave shuffle out"),
        ("fedavg", {"participation": "balanced"}, "give clients_per_round"),
    ],
)  # fmt: skip
def test_a_pair_of_parts_that_reveals_too_much_is_refused(
    system: str, settings: dict[str, Any], line: str
) -> None:
    with pytest.raises(ConfigError, match=line) as found:
        made(system, **settings)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("bound", ["norm", "direction"])
@pytest.mark.parametrize(
    ("channel", "refused", "remedy"),
    [("sum", "k_closest", "gaussian_share"), ("shuffle", "laplace", "k_closest")],
)
def test_a_remedy_for_vectors_of_bounded_norm_works(
    channel: str, refused: str, remedy: str, bound: str
) -> None:
    given = {"epsilon": 1.0, "channel": channel, "bound": bound}
    with pytest.raises(ConfigError, match=rf"use mechanism = {remedy}, or set channel = named$"):
        made("composed", **given, mechanism=refused)
    for changed in ({"mechanism": remedy}, {"mechanism": refused, "channel": "named"}):
        assert lines(made("composed", **{**given, **changed}))


@pytest.mark.parametrize("system", ["composed", "ldp_fl"])
def test_sites_refuse_a_shuffler(system: str) -> None:
    with pytest.raises(ConfigError, match=r"channel = shuffle: .* set channel = sum"):
        without_simulation(made(system, epsilon=1.0, channel="shuffle"))


@pytest.mark.parametrize("target", [None, {"adversary": "shuffled-server"}])
def test_sites_refuse_a_shuffler_of_whole_reports(target: dict[str, Any] | None) -> None:
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


@preset(
    MECHANISM.but(default="two_point"),
    Offer("epsilon", float, "budget of one weight", 1.0),
    CLIP.but(default=1.0),
    INTEGER_BITS,
    *RANGES,
    Offer("send", str, "what is sent", "weights"),
    *SHUFFLER,
)
def shuffled(settings: Settings) -> Composition:
    """A user's own preset whose reports always go through a shuffler."""
    calibration = PerReport(settings=settings)
    return Composition(
        local=Sgd(momentum=0.0),
        bound=InRange.of(settings),
        calibration=calibration,
        channel=Shuffle.of(settings),
        estimate=OwnMean(scale=calibration.scale),
    )


def test_a_users_preset_with_a_shuffler_is_refused_at_sites() -> None:
    config = shuffled.model_validate(SHARED)
    assert config.composition.channel.kind == "shuffle"
    with pytest.raises(ConfigError, match="a deployment has none; set channel = sum"):
        without_simulation(config)
    assert without_simulation(config.changed(channel="sum")).composition.channel.kind == "sum"


def test_a_channel_adds_the_line_of_its_adversary_and_changes_no_other() -> None:
    shared: dict[str, Any] = {"epsilon": 1.0, "participation": "all"}
    named = lines(made("composed", **shared, channel="named"))
    for channel, adversary in (("sum", "summing-server"), ("shuffle", "shuffled-server")):
        found = lines(made("composed", **shared, channel=channel))
        assert {key: found[key] for key in named} == named
        assert {against for _, against in found.keys() - named.keys()} == {adversary}


def test_noise_covers_as_many_rounds_as_a_client_can_take_part_in() -> None:
    settings: dict[str, Any] = {"epsilon": 1.0, "clip": 1.0, "clients_per_round": 5}
    drawn = made("personalized_sound", **settings)
    turns = made("personalized_sound", **settings, participation="balanced")
    for config, rounds in ((drawn, 4), (turns, 2)):
        mechanism = config.algorithm(PROBLEM).release(0).mechanism
        once = made("personalized_sound", epsilon=1.0, clip=1.0, rounds=1)
        alone = once.algorithm(PROBLEM).release(0).mechanism
        assert mechanism.sigma == pytest.approx(alone.sigma * rounds**0.5)  # type: ignore[attr-defined]
        assert lines(config)["client-run", "server"] <= 1.0


def test_a_claim_is_quoted_only_for_the_papers_own_algorithm() -> None:
    assert made("ldp_fl", epsilon=1.0).claim() is not None
    assert made("ldp_fl", epsilon=1.0, channel="sum").claim() is None
    balanced = {"participation": "balanced", "clients_per_round": 2}
    assert made("nbafl", epsilon=1.0, clip=1.0).claim() is not None
    assert made("nbafl", epsilon=1.0, clip=1.0, **balanced).claim() is None


def test_a_budget_that_is_not_set_is_calibrated_to_a_target() -> None:
    calibrated = made("composed", target={"unit": "client-run", "epsilon": 10.0})
    assert lines(calibrated)["client-run", "server"] <= 10.0
