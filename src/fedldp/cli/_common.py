"""What several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

DataDir = Annotated[
    Path | None, typer.Option(help="data folder; else $FEDLDP_DATA, else the user's cache folder")
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting; KEY= unsets it"),
]


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
