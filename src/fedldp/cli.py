"""The command line: fedldp run, account, list, data, ledger.

Results go to stdout, everything else to stderr.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
from itertools import groupby
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from fedldp import api
from fedldp.accounting.check import SMALLEST_DELTA
from fedldp.cli_ledger import ledger_app
from fedldp.errors import ConfigError, FedldpError, RunError
from fedldp.reporting import text
from fedldp.reporting.progress import RunProgress
from fedldp.reporting.record import RunFolder
from fedldp.settings import from_mapping, resolve, to_toml
from fedldp.simulation.engine import Result, simulate
from fedldp.simulation.plan import plan, problem_of
from fedldp.systems import SystemConfig

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    help="Federated learning under local differential privacy.",
)
data_app = typer.Typer(rich_markup_mode=None, help="The data folder.")
app.add_typer(data_app, name="data")
app.add_typer(ledger_app, name="ledger")

DataDir = Annotated[
    Path | None, typer.Option(help="data folder; else $FEDLDP_DATA, else the user's cache folder")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")]
stderr = Console(stderr=True)


@app.command()
def run(
    recipe: Annotated[
        str | None, typer.Argument(help="a recipe's name or a .toml file; else quickstart")
    ] = None,
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="change a setting; KEY= unsets it"),
    ] = None,
    rounds: Annotated[int | None, typer.Option(help="number of rounds")] = None,
    seed: Annotated[int | None, typer.Option(help="the simulation's seed")] = None,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda")] = "auto",
    workers: Annotated[int | None, typer.Option(help="processes; else one for each core")] = None,
    out: Annotated[Path | None, typer.Option(help="the run folder to make")] = None,
    resume: Annotated[Path | None, typer.Option(help="continue the run in this folder")] = None,
    data_dir: DataDir = None,
    print_config: Annotated[
        bool, typer.Option("--print-config", help="print the configuration as TOML, and stop")
    ] = False,
    as_json: Json = False,
) -> None:
    """Train a model over simulated clients, and say what that protected."""
    folder = None
    if resume is not None:
        if recipe or set_ or rounds is not None or seed is not None or out is not None:
            raise ConfigError(
                f"resume = {resume}: a run continues with its own settings; "
                "leave out RECIPE, --set, --rounds, --seed and --out"
            )
        folder = RunFolder(resume)
        document = folder.read_config()
        name, config = document["recipe"], from_mapping(document["config"])
    else:
        name = recipe or "quickstart"
        config = resolve(name, _assignments(set_ or [], rounds, seed))
    if print_config and as_json:
        raise ConfigError("--print-config prints TOML: leave out --json")
    if print_config:
        typer.echo(to_toml(config), nl=False)
        return
    if out is None and folder is None:
        out = api.new_run_dir(Path(name or config.system).stem, config.seed)
    result = _simulate(config, name, device, workers, out, folder, data_dir)
    if as_json:
        _print_json(result.summary())
    else:
        text.print_result(Console(), result.summary(), result.config.tested_on(), result.notes)


@app.command()
def account(
    recipe: Annotated[str, typer.Argument(help="a recipe's name or a .toml file")] = "quickstart",
    set_: Annotated[
        list[str] | None,
        typer.Option("--set", metavar="KEY=VALUE", help="change a setting; KEY= unsets it"),
    ] = None,
    delta: Annotated[float | None, typer.Option(help="delta of the approximate lines")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Say what a run would protect: no training, and for built-in data sets no data."""
    if delta is not None and delta != 0 and not SMALLEST_DELTA <= delta < 1:
        raise ConfigError(
            f"delta = {delta}: give 0, or a number from {SMALLEST_DELTA:g} and below 1"
        )
    config = resolve(recipe, set_ or [])
    planned = plan(config, problem_of(config, data_dir), delta=delta)
    if as_json:
        _print_json(planned.privacy)
    else:
        text.print_statement(Console(), planned.privacy)


def _assignments(given: list[str], rounds: int | None, seed: int | None) -> list[str]:
    extra = {"rounds": rounds, "seed": seed}
    return given + [f"{key}={value}" for key, value in extra.items() if value is not None]


def _simulate(
    config: SystemConfig,
    name: str | None,
    device: str,
    workers: int | None,
    out: Path | None,
    folder: RunFolder | None,
    data_dir: Path | None,
) -> Result:
    try:
        with RunProgress(config.rounds, stderr) as progress:
            return simulate(
                config,
                recipe=name,
                device=device,
                workers=workers if workers is not None else _cores(),
                out=out,
                resume=folder,
                data_dir=data_dir,
                before=lambda privacy: text.print_statement(stderr, privacy),
                after_round=progress.show,
            )
    except KeyboardInterrupt:
        place = folder.path if folder else out
        kept = place is not None and (place / "checkpoint").exists()
        stderr.print(
            f"interrupted; continue with: fedldp run --resume {place}"
            if kept
            else "interrupted before the first round was complete; nothing was kept",
            soft_wrap=True,
            highlight=False,
        )
        raise typer.Exit(130) from None


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@app.command("list")
def list_(
    kind: Annotated[str | None, typer.Argument(help="one of: " + ", ".join(text.KINDS))] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Show what there is to run."""
    if kind is not None and kind not in text.KINDS:
        raise ConfigError(f"list {kind}: choose {', '.join(text.KINDS)}")
    found = {name: rows(data_dir) for name, rows in text.KINDS.items() if kind in (None, name)}
    if as_json:
        _print_json(found if kind is None else found[kind])
        return
    for name, rows in found.items():
        table = Table("name", "", title=name, title_justify="left", show_header=False)
        for group, members in groupby(rows, key=lambda row: row.get("system")):
            if group is not None:
                table.add_section()
                table.add_row(f"[bold]{group}[/bold]", "")
            for row in members:
                table.add_row(row["name"], row["description"])
        Console().print(table)


@data_app.command("list")
def data_list(data_dir: DataDir = None, as_json: Json = False) -> None:
    """Show the data sets, their sources, and which are there."""
    rows = text.dataset_rows(data_dir)
    if as_json:
        _print_json(rows)
        return
    table = Table("name", "examples", "shape", "classes", "here", "licence", "source")
    for row in rows:
        cells = ("name", "examples", "input_shape", "classes", "present", "license", "source")
        table.add_row(*(text.cell(row[key]) for key in cells))
    Console().print(table)


@data_app.command("fetch")
def data_fetch(
    name: Annotated[str, typer.Argument(help="a data set's name")], data_dir: DataDir = None
) -> None:
    """Download a data set from its official source, and check it."""
    from fedldp.data.download import fetch

    typer.echo(fetch(name, data_dir))


@data_app.command("verify")
def data_verify(
    name: Annotated[str | None, typer.Argument(help="a data set's name; else all")] = None,
    data_dir: DataDir = None,
    as_json: Json = False,
) -> None:
    """Compare the files with their published checksums."""
    from fedldp.data import verify

    statuses = verify(name, data_dir)
    if as_json:
        _print_json([{"file": str(s.file), "status": s.status} for s in statuses])
    else:
        for status in statuses:
            typer.echo(f"{status.status:8} {status.file}")
    if any(s.status == "damaged" for s in statuses):
        raise RunError("a file is damaged: fetch it again with `fedldp data fetch NAME`")


def _print_json(document: Any) -> None:
    typer.echo(json.dumps(document, indent=2, allow_nan=False))


def main() -> None:
    """Run the command line; a user's error is one line on stderr and exit status 2."""
    # A process that ends frees all it has; to look for garbage first would take a while.
    atexit.register(gc.freeze)
    try:
        code = app(standalone_mode=False)
    except typer.TyperException as error:
        _refuse(f"{error.format_message()} (see fedldp --help)")
    except FedldpError as error:
        _refuse(str(error))
    except (KeyboardInterrupt, typer.Abort):
        sys.exit(130)
    except OSError as error:  # such as a closed pipe or a full disk behind stdout
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
        _refuse(f"cannot go on: {error}")
    sys.exit(code if isinstance(code, int) else 0)


def _refuse(message: str) -> None:
    print("error: " + " ".join(message.split()), file=sys.stderr)
    sys.exit(2)
