"""The command line: fedldp check."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from fedldp.cli._common import print_json
from fedldp.cli.options import Json, recipe_names
from fedldp.core.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fedldp.testing.checks import Outcome

_DATA = "digits"


def check(
    subject: Annotated[
        str,
        typer.Argument(
            autocompletion=recipe_names,
            metavar="MODULE:CLASS",
            help="your own mechanism or system; or a mechanism, system, recipe or .toml file",
        ),
    ],
    quick: Annotated[
        bool,
        typer.Option("--quick", help="leave out what counts or attacks many reports"),
    ] = False,
    as_json: Json = False,
) -> None:
    """Check that a mechanism or a system keeps its contract, with a line for each promise."""
    found = list(_outcomes(subject, quick=quick))
    if as_json:
        rows = [
            {"on": on, "check": each.name, "verdict": each.verdict, "found": each.text,
             "remedy": each.remedy}
            for on, each in found
        ]  # fmt: skip
        print_json({"subject": subject, "checks": rows})
    else:
        for on, each in found:
            told = ": ".join(filter(None, (on, each.name, each.text)))
            typer.echo(f"{each.verdict:14}  {told}")
            if each.remedy:
                typer.echo(f"{'':14}  remedy: {each.remedy}")
        typer.echo(
            "These checks find mistakes; none of them proves an epsilon. `fedldp audit` attacks it."
        )
    if any(each.verdict == "fails" for _, each in found):
        raise typer.Exit(1)


def _outcomes(subject: str, *, quick: bool) -> Iterator[tuple[str, Outcome]]:
    """Yield each outcome with the configuration that it is about; empty for a mechanism."""
    from fedldp.algorithms.config import RunConfig
    from fedldp.core.registry import is_address, load
    from fedldp.mechanisms import Mechanism, find_mechanism, mechanisms

    own = is_address(subject) and not subject.endswith(".toml")
    kind = load(subject, "check") if own else None
    if subject in mechanisms() or (isinstance(kind, type) and issubclass(kind, Mechanism)):
        from fedldp.testing.mechanisms import check_mechanism

        for each in check_mechanism(find_mechanism(subject), thorough=not quick):
            yield "", each
        return
    if own and not (isinstance(kind, type) and issubclass(kind, RunConfig)):
        raise ConfigError(
            f"check {subject}: it is neither a mechanism nor a system; a part is checked in the "
            "systems that use it, so name one of these"
        )
    from fedldp.audit.plans import configs_of
    from fedldp.testing.systems import check_system

    for config in configs_of(subject):
        if config.dataset != _DATA:
            raise ConfigError(
                f"check {subject}: its dataset is {config.dataset}; give a configuration with "
                f"dataset = {_DATA}, on which systems are checked"
            )
        for each in check_system(config):
            yield config.name(), each
