"""A run's configuration: the settings that every run has, its preset's settings, and its parts.

What leaves a client, and what that costs, follows from the parts alone. No part imports torch,
reads data, or sees an example, so a statement can be made before any training.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from decimal import ROUND_CEILING, Context, Decimal
from typing import Any, ClassVar, Self

from pydantic import BaseModel, ConfigDict, model_validator

from fedldp.accounting.guarantees import Guarantee
from fedldp.accounting.releases import ClientIndices
from fedldp.accounting.statement import Claim
from fedldp.algorithms.composition import SGD_SETTINGS, Algorithm, Composition
from fedldp.algorithms.participation import All, Once
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.run_settings import RunSettings
from fedldp.algorithms.settings import of_client, of_equal_values
from fedldp.algorithms.validation import shown
from fedldp.core.errors import ConfigError
from fedldp.core.formatting import number
from fedldp.core.registry import is_address
from fedldp.mechanisms.codes import ClippedCodes
from fedldp.protocol.roles import Draws
from fedldp.protocol.wire import Layout


class RunConfig(RunSettings):
    """A run's full configuration: frozen, public, and checked when it is made.

    ``preset`` makes a subclass for each system, with the system's own settings. Everything that a
    run must know about these settings comes from the composition.
    """

    model_config = ConfigDict(use_attribute_docstrings=False)  # presets have descriptions

    # Not a field, nor in __dict__: copies, comparisons and files know nothing of it.
    __slots__ = ("_parts",)

    compose: ClassVar[Callable[[Any], Composition]]
    """Builds the parts that follow from the settings; see ``preset``."""

    @model_validator(mode="after")
    def _check_unused(self) -> Self:
        unused = self.unused_settings()
        if self.committee is not None and not isinstance(self.composition.participation, All):
            raise ConfigError(
                f"committee = {self.committee}: every client must know who is in its committee, "
                "but not all clients take part in every round; set participation = all and leave "
                "clients_per_round out, or leave committee out"
            )
        if self.target is not None and self.calibrated in unused:
            raise ConfigError(
                f"target: there is no {self.calibrated} to solve for, because "
                f"{unused[self.calibrated]}; leave target out"
            )
        if self.label_range is not None and not self.composition.local.predicts_numbers:
            raise ConfigError(
                f"system = {self.name()} and label_range: this system trains models for classes; "
                "numbers are predicted by system = person_dp_sgd"
            )
        for name, value in self.given(*unused).items():
            undone = _undone(name, type(self).model_fields[name].default)
            raise ConfigError(f"{name} = {shown(value)}: {unused[name]}; {undone}")
        return self

    def identity(self, without: Collection[str] = ()) -> dict[str, Any]:
        """Return what every digest takes of a configuration: what it means, not how it is written.

        A setting that has its default is left out, so that a new setting changes no digest; for the
        same reason a preset's default never changes. So is ``clients_per_round`` if all clients
        take part, unless this setting may decide more than that: an automatic ``participation`` is
        "once" only without it, and nobody knows what a user's own system does with it. A
        ``version`` rises when the same settings give another result: the preset's, or that of a
        part that these settings use; 1 is left out.

        Args:
            without: settings that do not count, such as the seed.
        """
        settings = self.model_dump(mode="json", exclude_defaults=True, exclude={"system", *without})
        decides = getattr(self, "participation", None) == "auto" or is_address(self.name())
        if self.clients_per_round == self.num_clients and not decides:
            settings.pop("clients_per_round", None)
        version = self.version + self.composition.version - 1
        return {
            "system": self.name(),
            **({} if version == 1 else {"version": version}),
            "settings": settings,
        }

    def unused_settings(self) -> Mapping[str, str]:
        """Return the settings that are refused because they have no effect here, and why."""
        parts = self.composition
        unused = dict(parts.channel.unused)
        # Clients that collude with the server know their own summands, so their number matters.
        sums_noise = parts.channel.kind == "sum" and parts.calibration.kind is not ClippedCodes
        if not (parts.channel.hides_senders or sums_noise or parts.downlink is not None):
            unused["untrusted_clients"] = f"no line of {self.name()}'s statement depends on it here"
        if parts.channel.kind != "sum":
            unused["committee"] = "a secure sum carries the reports only with channel = sum"
        if not parts.local.weighs_classes:
            unused["class_weights"] = "these clients do not compute a loss per example"
        if not parts.local.trains_part:
            reason = "these clients need the whole model, with its random initial weights"
            unused |= dict.fromkeys(("trainable", "initial", "start"), reason)
        if not parts.local.plain_sgd:
            reason = "it changes the steps of plain SGD, but these clients compute something else"
            unused |= dict.fromkeys(SGD_SETTINGS, reason)
        unused |= parts.unused
        return {name: reason for name, reason in unused.items() if self.has(name)}

    @property
    def composition(self) -> Composition:
        """The parts that follow from the settings, built once.

        Raises:
            ConfigError: a mechanism or another part refuses a setting.
        """
        parts: Composition | None = getattr(self, "_parts", None)
        if parts is None:
            parts = type(self).compose(self)
            object.__setattr__(self, "_parts", parts)
        return parts

    def algorithm(self, problem: Problem) -> Algorithm:
        """Return the composition, bound to the public facts of ``problem``.

        Raises:
            ConfigError: a part refuses a setting, or the number of class weights is wrong.
        """
        if self.class_weights is not None and len(self.class_weights) != problem.num_classes:
            raise ConfigError(
                f"class_weights has {len(self.class_weights)} numbers, but {self.dataset} has "
                f"{problem.num_classes} classes; give one number per class, in the order of the "
                "classes"
            )
        labelled = self.columns.label is not None
        if labelled and (problem.num_classes == 1) != (self.label_range is not None):
            raise ConfigError(
                f"label_range = {self.label_range}: the labels of {self.dataset} are "
                + (
                    "numbers; give label_range = [LOW, HIGH], as for the data"
                    if self.label_range is None
                    else f"{problem.num_classes} classes; leave it out, or give the data the same "
                    "label_range"
                )
            )
        return Algorithm(self, self.composition, problem)

    def with_participation(self, chosen: str | None) -> Self:
        """Return a copy with another participation, checked when the copy's parts are made."""
        return BaseModel.model_copy(self, update={"participation": chosen})

    @property
    def answers_once(self) -> bool:
        """Whether every client takes part in one round only."""
        if getattr(self, "participation", None) == "auto":
            return isinstance(self.composition.participation, Once)
        return super().answers_once

    def layout(self, problem: Problem) -> Layout:
        """Return the layout of the model's parameters in a broadcast's weights.

        Raises:
            ConfigError: the model is incompatible with the problem.
        """
        return self.algorithm(problem).layout

    def with_schedule(self, draws: Draws) -> Self:
        """Return a copy with the values that the server draws, and announces, before the run."""
        participation = self.composition.participation
        if not participation.told:
            return self
        scheduled = participation.scheduled(draws)
        return self.changed(**{name: getattr(scheduled, name) for name in participation.told})

    def encoder_groups(self) -> list[ClientIndices]:
        """Return the clients in groups with equal settings that answer in as many rounds.

        Noise may follow from the number of rounds in which a client answers.
        """
        own: list[Any] = [getattr(self, name) for name in self.per_client]
        participation = self.composition.participation
        if not participation.told:  # else the settings that it tells have these numbers
            clients = range(self.num_clients)
            most = [-1 if n is None else n for n in map(participation.max_rounds, clients)]
            own += [most] if len(set(most)) > 1 else []
        return of_equal_values(own, self.num_clients)

    # Claims and statements

    def claim(self) -> Claim | None:
        """Return what the source claims about this configuration, if it claims anything."""
        found = self.composition.claim
        return found() if callable(found) else found

    def epsilon_in_words(self, guarantees: Sequence[Guarantee] = ()) -> str | None:
        """Return the setting ``epsilon`` in words, with what it covers.

        Args:
            guarantees: lines of the run's statement, if there is one. If the data name the person
                of each row, these lines turn a setting for a row into a setting for a person. Given
                these lines, the last digits of a setting that was solved for a target are left out,
                because nothing is proven for them.
        """
        meaning = self.composition.calibration.meaning
        value = getattr(self, "epsilon", None)
        if meaning is None or value is None:
            return None
        if meaning.standing == "proven" and isinstance(value, float):
            units = ("record", "person") if meaning.unit == "record" else (meaning.unit,)
            for line in guarantees:
                if line.unit in units and line.adversary == meaning.adversary and line.epsilon:
                    meaning = replace(meaning, unit=line.unit)
                    value = _shortest(line.epsilon, value)
        if is_address(self.name()):  # the user's own code states the epsilon
            meaning = replace(meaning, standing="claimed")
        values = value if isinstance(value, list) else [of_client(value, 0)]
        growth: float = getattr(self, "epsilon_growth", 1.0)
        values = [*values, *(each * growth ** (self.rounds - 1) for each in values)]
        least_to_most = " to ".join(map(number, sorted({min(values), max(values)})))
        return f"epsilon {least_to_most} {meaning}"

    @property
    def longer_begins_with_shorter(self) -> bool:
        """Whether a longer run's results begin with a shorter run's results.

        They do not if, for example, a target is solved for all rounds together, or the weights of
        the last rounds are averaged.
        """
        parts = self.composition
        uses = any(
            part.uses_rounds for part in (parts.calibration, parts.local, parts.participation)
        )
        return not uses and self.target is None and parts.share_averaged(self) == 0

    def with_budget(self, budget: float) -> Self:
        """Return a copy that spends ``budget``, to meet a target; a larger budget protects less.

        Raises:
            ConfigError: the system has no budget to solve for, or cannot have this budget.
        """
        if self.inverse:
            return self.changed(**{self.calibrated: 1 / budget})
        if not self.has(self.calibrated):
            raise ConfigError(
                f"target: {self.name()} has no epsilon to solve for; choose another system"
            )
        if isinstance(own := getattr(self, self.calibrated), list):
            raise ConfigError(
                f"target: epsilon = {own} has a budget for each client; give one budget for all "
                "clients"
            )
        drawn = dict.fromkeys(self.composition.participation.told)  # the server redraws these
        return self.changed(**{self.calibrated: budget, **drawn})


def _shortest(proven: float | None, setting: float) -> float:
    """Return the shortest decimal between the proven number and a setting slightly above it.

    >>> _shortest(0.99999, 1.00004), _shortest(7.9992, 8.0), _shortest(0.5, 8.0)
    (1.0, 8.0, 8.0)
    """
    if proven is None or not 0.99 * setting < proven <= setting:
        return setting
    for digits in range(1, 17):
        rounded = Context(prec=digits, rounding=ROUND_CEILING).create_decimal(proven)
        if rounded <= Decimal(setting):
            return float(rounded)
    return setting


def _undone(name: str, default: Any) -> str:
    """Return how to undo a setting, in a file and on the command line.

    A setting that has no default value can only be left out.
    """
    if default is None:
        return f"leave it out (on the command line: `--set {name}=`)"
    return f"leave it out, or set it to {shown(default)}"
