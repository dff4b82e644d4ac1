"""The command line: fedldp check."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Any

import typer

from fedldp.accounting.events import Event
from fedldp.algorithms.config import RunConfig
from fedldp.algorithms.systems import find_system
from fedldp.cli.options import Answer, recipe_names
from fedldp.core.errors import ConfigError
from fedldp.core.registry import is_address, load
from fedldp.mechanisms import Mechanism, find_mechanism, mechanisms
from fedldp.testing.checks import Outcome

_DATA = "digits"


def check(
    subject: Annotated[str, typer.Argument(autocompletion=recipe_names)],
    *,
    quick: bool = False,
) -> Answer:
    """Check that a mechanism, part, system, event or attack keeps its contract, line by line.

    Help:
        subject (MODULE:NAME): your own mechanism, part, system, event or attack; or a mechanism,
            system, recipe or .toml file
        quick: leave out what counts or attacks many reports
    """
    found = list(_outcomes(subject, quick=quick))
    rows = [
        {"on": on, "check": each.name, "verdict": each.verdict, "found": each.text,
         "remedy": each.remedy}
        for on, each in found
    ]  # fmt: skip

    def show(_: object) -> None:
        for on, each in found:
            told = ": ".join(filter(None, (on, each.name, each.text)))
            typer.echo(f"{each.verdict:14}  {told}")
            if each.remedy:
                typer.echo(f"{'':14}  remedy: {each.remedy}")
        typer.echo(
            "These checks find mistakes; none of them proves an epsilon. `fedldp audit` tries more."
        )

    fails = any(each.verdict == "fails" for _, each in found)
    return Answer({"subject": subject, "checks": rows}, show, int(fails))


def _outcomes(subject: str, *, quick: bool) -> Iterator[tuple[str, Outcome]]:
    """Yield each outcome with the system that it is about; empty for what is checked alone."""
    own = is_address(subject) and not subject.endswith(".toml")
    found: Any = load(subject, "check") if own else None
    kind = found if isinstance(found, type) else type(None)
    if subject in mechanisms() or issubclass(kind, Mechanism):
        from fedldp.testing.mechanisms import check_mechanism

        alone = check_mechanism(find_mechanism(subject), thorough=not quick)
    elif issubclass(kind, Event):
        from fedldp.testing.events import check_event

        alone = check_event(kind, thorough=not quick)
    elif own and not isinstance(found, type):
        from fedldp.testing.attacks import check_attack, is_attack

        if not is_attack(found):
            raise ConfigError(
                f"check {subject}: give a class (a mechanism, a part, an event), a preset, or an "
                "attack, which is a function of scenario and effort"
            )
        alone = check_attack(found)
    else:
        yield from _of_systems(subject, kind if own else None, quick=quick)
        return
    for each in alone:
        yield "", each


def _of_systems(subject: str, kind: type | None, *, quick: bool) -> Iterator[tuple[str, Outcome]]:
    """Yield the outcomes of systems: of those that use a part, or of those that a user names."""
    from fedldp.audit.plans import configs_of
    from fedldp.testing.systems import check_part, check_system, small_config

    if kind is not None and not issubclass(kind, RunConfig):
        for name, found in check_part(kind, thorough=not quick).items():
            for each in found:
                yield name, each
        return
    for config in configs_of(subject) if kind is None else [small_config(find_system(subject))]:
        if config.dataset != _DATA:
            raise ConfigError(
                f"check {subject}: its dataset is {config.dataset}; give a configuration with "
                f"dataset = {_DATA}, on which systems are checked"
            )
        for each in check_system(config, thorough=not quick):
            yield config.name(), each
