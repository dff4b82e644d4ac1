"""What several commands share."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from fedldp.errors import ConfigError


def folder(text: str) -> Path:
    """Return the folder that a text names, of which an empty one would be the working folder."""
    if not text.strip():
        raise ConfigError(f"folder {text!r}: give the path of a folder, or leave the option out")
    return Path(text)


def recipe_names(incomplete: str) -> list[str]:
    """Return the recipes that a shell may complete a name to."""
    from fedldp.recipes import recipes

    return [name for name in recipes() if name.startswith(incomplete)]


DataDir = Annotated[
    Path | None,
    typer.Option(
        parser=folder,
        metavar="FOLDER",
        help="data folder; else $FEDLDP_DATA, else the user's cache folder",
    ),
]
Json = Annotated[bool, typer.Option("--json", help="print one JSON document on stdout")]
Settings = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="change a setting; KEY= unsets it"),
]


def print_json(document: Any) -> None:
    """Print one JSON document on stdout."""
    typer.echo(json.dumps(document, indent=2, allow_nan=False))
