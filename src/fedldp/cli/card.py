"""The command line: fedldp card."""

from __future__ import annotations

from pathlib import Path

import typer

from fedldp.cli.options import Answer
from fedldp.core.errors import ConfigError
from fedldp.reporting import card as cards
from fedldp.reporting.record import MODEL
from fedldp.reporting.text import Terminal
from fedldp.simulation.result import read_run, weights_of


def card(
    run_dir: Path | None = None,
    *,
    out: Path | None = None,
    scores: bool = False,
    schema: bool = False,
) -> Answer:
    """Write the two documents to publish with a model: a privacy document and a model card.

    privacy.json says what the run protects. It has the fields of the registry of deployments, and
    covers the hazards that NIST SP 800-226 lists. README.md is a model card for Hugging Face. The
    command lists the fields that cannot be derived from the run, for the publisher to fill in.

    Help:
        run_dir ([DIR]): the folder of a simulated or deployed run
        out (FOLDER): the folder to write [default: DIR/card]
        scores: also publish scores on the clients' own rows, which is a release
        schema: print the JSON Schema of privacy.json, and stop
    """
    if schema:
        return Answer(cards.schema())
    if run_dir is None:
        raise ConfigError("card: give the folder of a run, for example: fedldp card runs/mine")
    run = read_run(run_dir)
    weights = None if run.finished else weights_of(run_dir)
    place, document = cards.write_card(run, out, scores=scores, weights=weights)
    missing = len(document["to_be_filled"]["fields"])
    typer.echo(
        f"to fill    {missing} fields that the publisher must fill in; README.md lists them",
        err=True,
    )
    if cards.hides_scores(document):
        typer.echo(f"note       {cards.CONFIDENTIAL}; --scores includes them", err=True)

    def show(console: Terminal) -> None:
        for name in (*cards.FILES, *(() if run.finished else (MODEL,))):
            console.say("card", str(place / name))

    return Answer(document, show)
