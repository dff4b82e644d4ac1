"""The command line: one file for a command or two. Results go to stdout, everything else to stderr.

A command's file is imported once the command is called, so that help and mistaken names appear at
once. Only what takes seconds to import (torch) is imported inside functions.

It may use core, accounting, data, ledgers, protocol, mechanisms, models, training, algorithms,
reporting, simulation, experiments, audit, testing, deployment, integrations.
"""

from __future__ import annotations

import ast
import atexit
import gc
import os
import sys
from importlib import import_module
from pathlib import Path
from typing import Annotated, Any, cast

import typer
import typer.core

from fedldp.cli.options import Commands, Group
from fedldp.core.errors import FedldpError, SeveralErrors
from fedldp.core.registry import naming_own_code

__all__ = [
    "app",
    "main",
]

# The base class of all argument errors. It is defined by click up to typer 0.20, and by typer
# itself since then.
UsageError = cast(
    type[typer.BadParameter],
    next(kind for kind in reversed(typer.BadParameter.__mro__) if hasattr(kind, "format_message")),
)

# Otherwise, if rich is installed, plain help shows a backslash before "[default: ...]" (typer issue
# 1058).
typer.core.HAS_RICH = False

_NAMES = (
    *("run", "account", "advise", "ask", "check", "audit", "reproduce", "sweep", "compare"),
    *("report", "card", "list", "show", "evaluate", "predict", "data", "ledger", "deploy"),
)
_FILES = {"list": "list_", "predict": "evaluate"}
"""The file of a command, where it does not have the command's name."""


class Later(typer.core.TyperCommand):
    """A command, or a group of them, whose file is imported once it is called.

    Its help in a list is the first line of its function's docstring, or of its file's for a group.
    """

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self._file = _FILES.get(name, name)

    def get_short_help_str(self, limit: int = 0) -> str:
        """Return what it does, in one line."""
        tree = ast.parse(Path(__file__).with_name(f"{self._file}.py").read_bytes())
        functions = {each.name.rstrip("_"): each for each in tree.body
                     if isinstance(each, ast.FunctionDef)}  # fmt: skip
        return (ast.get_docstring(functions.get(str(self.name), tree)) or "").partition("\n")[0]

    def make_context(self, *given: Any, **more: Any) -> Any:
        """Parse its arguments and options."""
        return self.load().make_context(*given, **more)

    def load(self) -> Any:
        """Return the command itself."""
        members = vars(import_module(f"{__name__}.{self._file}"))
        group = members.get("app") or Group()
        if "app" not in members:
            group.command(self.name)(members.get(str(self.name)) or members[self._file])
        return typer.main.get_command(group)


class _All(Commands):
    def __init__(self, **more: Any) -> None:
        super().__init__(**more)
        self.commands.update({name: Later(name) for name in _NAMES})


app = Group(
    cls=_All,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _show_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(f"fedldp {version('fedldp')}")
        raise typer.Exit


@app.callback()
def fedldp(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="show the version"),
    ] = False,
) -> None:
    """Federated learning under local differential privacy."""


def main() -> None:
    """Run the command line; a user's error is a line on stderr and a nonzero exit status."""
    # Imports make many objects that stay: looking at them for garbage takes a tenth of a short run.
    gc.set_threshold(100_000, 50, 50)
    # NumPy is not imported yet. Its products are small here, and more threads would mostly wait for
    # each other, busily: a fifth of a short run's CPU time.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    # The operating system frees everything anyway; a final garbage collection would only take time.
    atexit.register(gc.freeze)
    try:
        with naming_own_code():
            code = app(standalone_mode=False)
    except UsageError as error:
        _refuse(f"{error.format_message()} ({_remedy(error)})")
    except SeveralErrors as several:
        _refuse(*several.lines, status=several.exit_status)
    except FedldpError as error:
        _refuse(str(error), status=error.exit_status)
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except OSError as error:  # such as a closed pipe or a full disk behind stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _refuse(f"cannot continue: {error}")
    sys.exit(code if isinstance(code, int) else 0)


def _remedy(error: typer.BadParameter) -> str:
    """Return a hint for a user who may have mistaken a run's setting for an option."""
    name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
    options = [] if error.ctx is None else error.ctx.command.params
    if name != "set" and not any("--set" in option.opts for option in options):
        return "see fedldp --help"
    if name == "epsilon":
        return (
            "epsilon is a setting: use --set epsilon=2, or --set target.epsilon=2 to calibrate "
            "the noise to it; fedldp show RECIPE lists all settings"
        )
    if name == "set":
        return (
            "this command takes settings from a file: write one with `fedldp run RECIPE --set "
            "KEY=VALUE --print-config > FILE.toml`, and give FILE.toml instead of RECIPE"
        )
    setting = f"to change a run's setting, use --set {name}=VALUE; " if name else ""
    return f"{setting}see fedldp --help"


def _refuse(*messages: str, status: int = FedldpError.exit_status) -> None:
    for message in messages:
        print("error: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(status)
