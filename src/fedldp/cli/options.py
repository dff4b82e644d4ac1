"""The arguments and options that several commands share."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

from fedldp.core.errors import ConfigError


class Commands(typer.core.TyperGroup):
    """A group whose help has the whole first sentence of each command, on several lines."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write a line or more about each command; the base class cuts off what is too long."""
        rows = []
        for name in self.list_commands(ctx):
            command = self.get_command(ctx, name)
            if command is not None and not command.hidden:
                rows.append((name, command.get_short_help_str(limit=1000)))
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def folder(text: str) -> Path:
    """Return the path of a folder; refuse an empty string, which would be the working folder."""
    if not text.strip():
        raise ConfigError(f"folder {text!r}: give the path of a folder, or leave the option out")
    return Path(text)


def file(text: str) -> Path:
    """Return the path of a file; refuse an empty string."""
    if not text.strip():
        raise ConfigError(f"file {text!r}: give the path of a file, or leave the option out")
    return Path(text)


def folder_option(help: str) -> Any:
    """Return the option for the path of a folder."""
    return typer.Option(parser=folder, metavar="FOLDER", help=help)


def file_option(help: str, metavar: str = "FILE") -> Any:
    """Return the option for the path of a file."""
    return typer.Option(parser=file, metavar=metavar, help=help)


def folder_argument(help: str, metavar: str) -> Any:
    """Return the argument for the path of a folder."""
    return typer.Argument(parser=folder, metavar=metavar, help=help)


def recipe_names(incomplete: str) -> list[str]:
    """Return the names of recipes that complete what the user has typed."""
    from fedldp.algorithms import recipes

    return [name for name in recipes.recipe_names() if name.startswith(incomplete)]


DataDir = Annotated[
    Path | None,
    folder_option("the data folder [default: $FEDLDP_DATA, or else the user's cache folder]"),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting; KEY= unsets it"),
]
Budget = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="start no new run after this much time, such as 90s, 20m or 2h"
    ),
]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """How the runs of an experiment are made, kept and shown; each field is an option."""

    out: Annotated[
        Path | None, folder_option("the folder for the results; an unfinished one is continued")
    ] = None
    workers: Annotated[
        int | None, typer.Option(help="number of runs at a time [default: one per core]")
    ] = None
    cluster: Annotated[
        str | None,
        typer.Option(
            help="use a Ray cluster (auto or HOST:PORT) instead of --workers, with one run per CPU"
        ),
    ] = None
    resume: Annotated[
        Path | None, folder_option("continue what is in this folder, with its own settings")
    ] = None
    same_data: Annotated[
        bool,
        typer.Option(
            "--same-data",
            help="with a folder whose key is missing here: confirm that private data are the same",
        ),
    ] = False
    verify: Annotated[
        Path | None,
        folder_option("train nothing: say what is missing or differs in this folder"),
    ] = None
    again: Annotated[
        int | None,
        typer.Option(help="with --verify: make this many runs again, and compare them"),
    ] = None
    data_dir: DataDir = None
    as_json: Json = False


@dataclass(frozen=True, kw_only=True)
class RunsOfSweep(Runs):
    """The same for a sweep, which other options extend."""

    resume: Annotated[
        Path | None, folder_option("continue the sweep in this folder; other options extend it")
    ] = None


def taking(group: type) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Add the fields of ``group`` as options to a command that takes such a group first."""
    fields = inspect.signature(group, eval_str=True).parameters

    def added(command: Callable[..., None]) -> Callable[..., None]:
        def call(**given: Any) -> None:
            command(group(**{name: given.pop(name) for name in fields}), **given)

        own = list(inspect.signature(command, eval_str=True).parameters.values())[1:]
        needed = [each for each in fields.values() if each.default is each.empty]
        every = [*needed, *own, *(each for each in fields.values() if each not in needed)]
        every = [each.replace(kind=each.KEYWORD_ONLY) for each in every]
        call.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        call.__name__, call.__doc__ = command.__name__, command.__doc__
        return call

    return added
