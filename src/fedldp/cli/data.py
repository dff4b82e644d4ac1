"""The data folder: download data sets, and check them."""

from __future__ import annotations

import typer

from fedldp.cli.options import Answer, DataDir, Group, Json
from fedldp.core.errors import RunError
from fedldp.data import verify as compare

app = Group(help=__doc__)


@app.command()
def fetch(name: str, *, data_dir: DataDir = None) -> None:
    """Download a data set from its official source, and check it.

    Help:
        name: a data set's name
    """
    from fedldp.data.download import fetch as download

    for path in download(name, data_dir):
        typer.echo(path)


@app.command()
def verify(name: str | None = None, *, data_dir: DataDir = None, as_json: Json = False) -> None:
    """Compare the files with their published checksums.

    Help:
        name: a data set's name [default: all]
    """
    statuses = compare(name, data_dir)
    document = [{"file": str(file), "status": status} for file, status in statuses.items()]
    lines = "".join(f"{status:8} {file}\n" for file, status in statuses.items())
    Answer(document, lambda _: typer.echo(lines, nl=False)).tell(as_json)
    begun = {file.parent for file, status in statuses.items() if status != "missing"}
    for file, status in statuses.items():
        is_wanted = name is not None or file.parent in begun or not begun
        if status == "damaged" or (status == "missing" and is_wanted):
            raise RunError(
                f"{file} is {status}: fetch it with `fedldp data fetch {name or 'NAME'}`, or give "
                "the right folder with --data-dir"
            )
