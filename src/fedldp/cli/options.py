"""How a function becomes a command: its arguments, its options, and what it answers."""

from __future__ import annotations

import inspect
import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args, get_origin

import typer
import typer.core
from typer.models import ArgumentInfo

from fedldp.core.errors import ConfigError

if TYPE_CHECKING:
    from fedldp.reporting.text import Terminal


@dataclass(frozen=True)
class Answer:
    """What a command answers on stdout.

    Attributes:
        document: what ``--json`` prints, or what returns it; it consists of JSON values.
        show: prints the same for people; None prints the document.
        status: the command's exit status.
    """

    document: Any
    show: Callable[[Terminal], None] | None = None
    status: int = 0

    def tell(self, as_json: bool) -> None:
        """Print it."""
        if as_json or self.show is None:
            found = self.document() if callable(self.document) else self.document
            typer.echo(json.dumps(found, indent=2, allow_nan=False))
        else:
            from fedldp.reporting.text import Terminal

            self.show(Terminal())


def summary_of(documented: object) -> str:
    """Return the first line of a docstring; an empty string without one."""
    return (inspect.getdoc(documented) or "").partition("\n")[0]


_OPTION = inspect.Parameter.KEYWORD_ONLY


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


class Group(typer.Typer):
    """A group of commands, each of which has its help in its docstring, in a section Help.

    A command's parameters before the * are arguments, those after it options; a bool is a flag. A
    line of the section is ``name (KIND): text``. KIND, which may be left out, is an option's own
    spelling ("--out"), what the help shows for its value ("FILE"), or both. The text may say what
    goes together: "[only with --a]", "[not with --a, --b]", or "[not with other settings]", which
    are --out and all of the command's own that may be left out. A parameter whose type is a
    dataclass stands for the fields of that class, which has such a section too. A command that
    returns an ``Answer`` has the option --json, of which it is told if it has a parameter as_json.
    """

    def __init__(self, **more: Any) -> None:
        super().__init__(
            **{"cls": Commands, "rich_markup_mode": None, "add_completion": False} | more
        )

    def command(self, name: str | None = None, **more: Any) -> Callable[[Any], Any]:
        """Return a decorator that adds a function as a command; the function stays as it is."""

        def added(function: Callable[..., Answer | None]) -> Callable[..., Answer | None]:
            own = function.__name__.strip("_").replace("_", "-")  # list_ is called list
            super(Group, self).command(name or own, **more)(_called(function))
            return function

        return added


def _called(function: Callable[..., Answer | None]) -> Callable[..., None]:
    """Return what typer calls for a command; see ``Group``."""
    signature = inspect.signature(function, eval_str=True)
    own = signature.parameters
    groups = {each.name: each.annotation for each in own.values() if _is_group(each.annotation)}
    shown = list(parameters(function, {}))
    if "as_json" not in own and signature.return_annotation is not None:
        shown.append(inspect.Parameter("as_json", _OPTION, default=False, annotation=Json))

    def call(**given: Any) -> None:
        _check_together(shown, own, given)
        as_json = bool(given.get("as_json") if "as_json" in own else given.pop("as_json", False))
        for name, group in groups.items():
            given[name] = group(**{each.name: given.pop(each.name) for each in fields(group)})
        answer = function(**given)
        if answer is not None:
            answer.tell(as_json)
            raise typer.Exit(answer.status)

    call.__signature__ = inspect.Signature(shown)  # type: ignore[attr-defined]
    call.__name__ = function.__name__
    call.__doc__ = (inspect.getdoc(function) or "").partition("\nHelp:\n")[0]
    return call


_TOGETHER = re.compile(r"\[(not|only) with ([^\]]*)\]")


def _check_together(
    shown: Sequence[inspect.Parameter], own: Collection[str], given: Mapping[str, Any]
) -> None:
    """Refuse arguments and options that do not go together; see ``Group``."""
    made = {}
    others = ["--out"]
    for each in shown:
        is_argument = isinstance(get_args(each.annotation)[-1], ArgumentInfo)
        word = each.name.strip("_").replace("_", "-")
        name = word.upper() if is_argument else f"--{word}"
        if each.name in own and each.default is not each.empty and each.name != "as_json":
            others.append(name)
        if given[each.name] not in (each.default, None, []):
            made[name] = each
    for name, each in made.items():
        told = f"{name.strip('-')} = {given[each.name]}"
        for rule, names in _TOGETHER.findall(get_args(each.annotation)[-1].help or ""):
            listed = others if names == "other settings" else names.split(", ")
            beside = [other for other in listed if other in made and other != name]
            if rule == "only" and not beside:
                raise ConfigError(f"{told}: this is only for {names}; add it, or leave {name} out")
            if rule == "not" and beside:
                twice = ", ".join(beside)
                raise ConfigError(
                    f"{told}: it does not go with {twice}; leave out one or the other"
                )


def _is_group(hint: Any) -> bool:
    return is_dataclass(hint)


def parameters(
    of: Callable[..., object], more: Mapping[str, tuple[str, str]]
) -> Iterator[inspect.Parameter]:
    """Yield the parameters of a command or a dataclass as typer reads them.

    Args:
        of: the command or the class.
        more: what the help of a command says of such a class's fields, in place of the class.
    """
    texts = described(of) | dict(more)
    for each in inspect.signature(of, eval_str=True).parameters.values():
        if _is_group(each.annotation):
            yield from parameters(each.annotation, texts)
            continue
        hint = _annotated(each, *texts[each.name]) if each.name in texts else each.annotation
        yield each.replace(kind=_OPTION, annotation=hint)


def _annotated(parameter: inspect.Parameter, kind: str, text: str) -> Any:
    hint, *given = [parameter.annotation]
    if get_origin(hint) is Annotated:
        hint, *given = get_args(hint)
    names = [word for word in kind.split() if word.startswith("-")]
    if hint is bool:  # typer would add --no-NAME
        names = names or [f"--{parameter.name.replace('_', '-')}"]
    is_option = parameter.kind is _OPTION
    info = copy(given[0]) if given else typer.Option(*names) if is_option else typer.Argument()
    info.help = text
    info.metavar = " ".join(word for word in kind.split() if word not in names) or None
    if hint in (Path, Path | None, list[Path], list[Path] | None):
        info.parser = path
    return Annotated[hint, info]


_ENTRY = re.compile(r"^ {4}(\w+)(?: \(([^)]*)\))?: (.*(?:\n {8}.*)*)", re.M)


def described(documented: object) -> dict[str, tuple[str, str]]:
    """Return what a docstring's section Help says of a name: the text in brackets, and the rest."""
    found = re.search(r"^Help:\n((?:[ \t]+.*\n?|\n)+)", inspect.getdoc(documented) or "", re.M)
    entries = _ENTRY.findall(found[1]) if found else []
    return {name: (kind, " ".join(rest.split())) for name, kind, rest in entries}


def path(text: str | Path) -> Path:
    """Return the path of a file or folder; refuse an empty one, which is the working folder."""
    if not str(text).strip():
        raise ConfigError(f"path {text!r}: give the path of a file or a folder, or leave it out")
    return Path(text)


def recipe_names(incomplete: str) -> list[str]:
    """Return the names of recipes that complete what the user has typed."""
    from fedldp.algorithms import recipes

    return [name for name in recipes.recipe_names() if name.startswith(incomplete)]


DataDir = Annotated[
    Path | None,
    typer.Option(
        parser=path,
        metavar="FOLDER",
        help="the data folder [default: $FEDLDP_DATA, or else the user's cache folder]",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")]
Positive = Annotated[int | None, typer.Option(min=1)]
Yes = Annotated[bool, typer.Option("--yes", help="do not ask for confirmation")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting; KEY= unsets it"),
]


@dataclass(frozen=True, kw_only=True)
class Runs:
    """How the runs of an experiment are made, kept and shown; each field is an option.

    Help:
        out (FOLDER): the folder for the results; an unfinished one is continued
        workers: number of runs at a time [default: one per core]
        cluster: use a Ray cluster (auto or HOST:PORT) instead of --workers, with one run per CPU
        budget (TIME): start no new run after this much time, such as 90s, 20m or 2h
        resume (FOLDER): continue what is in this folder, with its own settings [not with other
            settings]
        same_data: with a folder whose key is missing here: confirm that private data are the same
        verify (FOLDER): train nothing: say what is missing or differs in this folder [not with
            other settings]
        again: make this many runs again, and compare them [only with --verify]
    """

    out: Path | None = None
    workers: int | None = None
    cluster: str | None = None
    budget: str | None = None
    resume: Path | None = None
    same_data: bool = False
    verify: Path | None = None
    again: int | None = None
    data_dir: DataDir = None
