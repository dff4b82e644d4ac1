"""The composition of a loop outside fedldp: its settings, and its statement before any message.

    TOML file or keywords -> composition -> RunConfig, whose data and model are stand-ins
    a model's layout, or a number of weights -> bound_to -> Algorithm
                                             -> planned  -> Statement

Data, model and training belong to the loop, and so does the choice of who answers in a round. What
an answer releases depends on none of them except the layout of the trained weights.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedldp.accounting.accountants import real_arithmetic_only
from fedldp.accounting.releases import ReleaseHistory
from fedldp.accounting.statement import Statement
from fedldp.algorithms.composition import Algorithm, Composition, Sgd
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.server_update import OwnMean, WeightedMean
from fedldp.algorithms.systems import deployed
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.facts import Caveat
from fedldp.core.kinds import ANSWER_TIME, CODE_OF_THE_NODE, FROZEN_WEIGHTS_PUBLIC
from fedldp.models import ALL, Layer, name_of
from fedldp.protocol.wire import Layout
from fedldp.simulation.settings import from_mapping, settings_in

if TYPE_CHECKING:
    from torch import nn

_OF_EVERY_RUN = ("system", "num_clients", "rounds", "delta", "trainable")
"""The settings of every run that mean something here."""

_OF_THE_LOOP = ("local_update", "momentum", "augmentation", "features", "participation")
"""The settings of some systems that say what the loop itself decides."""

_INSTEAD = {
    "target": "no budget is solved for here; give epsilon, and read what the statement says",
    "client_budget": "the limit of a node's ledger is the argument budget",
    "person_budget": "the limit of a node's ledger is the argument budget",
}
"""Settings of privacy that are given in another way."""

_STAND_INS = {
    "system": "composed",
    "dataset": "none",
    "model": "none",
    "learning_rate": 1.0,
    "participation": "all",
}
"""What a configuration needs although nothing that is sent depends on it; and the system."""


def composition(file: str | Path | None, settings: Mapping[str, Any]) -> RunConfig:
    """Return the configuration of a composition in a loop outside fedldp, from settings alone.

    Args:
        file: a TOML file with settings of the mechanism, its bound and its budget, and with
            ``num_clients``, ``rounds``, ``delta``, ``trainable``; ``system`` is composed unless it
            names another. None: there is no file.
        settings: settings by name, which replace those of the file; None unsets one.

    Raises:
        ConfigError: a setting is wrong, or says what the loop decides (data, model, training,
            server, participation); or the composition cannot be used in a loop in which the server
            reads each report separately.
    """
    if file is not None and not str(file).endswith(".toml"):
        raise ConfigError(
            f"recipe {file}: your own loop has its own data, model and training, which a recipe "
            "has too; give a .toml file with the settings of the mechanism"
        )
    given = {**({} if file is None else settings_in(Path(file))), **settings}
    given = {name: value for name, value in given.items() if value is not None}
    for name in given:
        common = name in RunConfig.model_fields and name not in _OF_EVERY_RUN
        if common or name in _OF_THE_LOOP:
            why = "your own loop decides this, or no answer of its nodes depends on it"
            raise ConfigError(f"{name}: {_INSTEAD.get(name, why)}; leave it out")
    config = from_mapping({**_STAND_INS, **given})
    _check_fits(config)
    return config


def bound_to(config: RunConfig, layout: Layout) -> Algorithm:
    """Return the algorithm for messages of a layout, which knows neither data nor model.

    Raises:
        ConfigError: the composition has no guarantee for the floats that would be sent.
    """

    def model(shape: tuple[int, ...], classes: int) -> list[Layer]:
        return [_Parameters(layout, classes)]

    # All of the layout is trained.
    whole = config.changed(model=name_of(model), trainable=ALL)
    found = whole.algorithm(Problem((1,), 2, config.num_clients))
    event = found.encoder(0).event()  # refuses a composition without a statement
    if real_arithmetic_only(event):
        raise ConfigError(
            f"event {type(event).__name__}: its guarantee holds for real numbers only, not for the "
            "floats that would be sent; set mechanism = gaussian, two_point or k_closest"
        )
    return found


def planned(config: RunConfig, layout: Layout, delta: float | None = None) -> Statement:
    """Return the statement for a node that answers in every round of a run.

    Args:
        config: what ``composition`` returned.
        layout: the layout of the trained weights.
        delta: delta for the approximate guarantees; None uses ``config.delta``.

    Raises:
        ConfigError: see ``bound_to``.
    """
    event = bound_to(config, layout).encoder(0).event()
    rounds = dict.fromkeys(range(1, config.rounds + 1))
    return stated_for(config, ReleaseHistory.planned({event: range(1)}, rounds), delta=delta)


def stated_for(
    config: RunConfig, releases: ReleaseHistory, *more: Caveat, delta: float | None = None
) -> Statement:
    """Return the statement for what a node releases, with more caveats."""
    timed = ANSWER_TIME(at="node")
    found = deployed(config, None, releases, summed=None, simulated=False, timed=timed, delta=delta)
    frozen = () if config.trainable == ALL else (FROZEN_WEIGHTS_PUBLIC,)
    return found.warning(*more, *frozen, CODE_OF_THE_NODE)


@dataclass(frozen=True)
class _Parameters(Layer):
    """A stand-in layer with all parameters of a model that the user's own code trains."""

    of: Layout
    outputs: int

    def module(self, shape: tuple[int, ...]) -> nn.Module:
        raise RunError("the model is trained elsewhere: it has no module here")

    def parameters(self, shape: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        return dict(zip(self.of.names, self.of.shapes, strict=True))

    def output(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        return (self.outputs,)


def _check_fits(config: RunConfig) -> None:
    """Refuse a composition whose client side cannot be used around training in the user's own loop.

    Raises:
        ConfigError: the composition cannot be used; the message names the part that prevents this.
    """
    parts: Composition = config.composition
    name, wrong = config.name(), None
    if parts.channel.kind != "named" or parts.channel.phases != 1:
        wrong = (
            f"channel = {parts.channel.kind}: in this loop, the server reads each report "
            "separately; set channel = named"
        )
    elif type(parts.local).__call__ is not Sgd.__call__:
        wrong = (
            "its clients compute something other than trained weights, but here your own code "
            "trains; choose a system whose clients send weights, such as system = composed with "
            "local_update = sgd"
        )
    elif parts.server_noise is not None or parts.downlink is not None:
        wrong = (
            "its server adds noise, but this loop's server adds none; choose a system whose "
            "clients add the noise"
        )
    elif parts.stages:
        wrong = "its rounds release different things; leave epsilon_growth out"
    elif type(parts.estimate) not in (OwnMean, WeightedMean) or (
        parts.estimate.needs not in ("sum", "reports")
    ):
        wrong = (
            f"{parts.estimate.setting}: its server weights reports by what clients reveal about "
            "themselves; set weighting = uniform"
        )
    elif parts.calibration.label(0) is not None or not hasattr(parts.bound, "announce"):
        wrong = "some settings differ by client; give one value for all clients"
    if wrong is not None:
        raise ConfigError(f"system = {name}: {wrong}")
