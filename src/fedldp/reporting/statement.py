"""A privacy statement as an object that displays itself, in a terminal and in a notebook."""

from __future__ import annotations

import io
from collections.abc import Iterable
from html import escape
from typing import Any

from fedldp.reporting.text import (
    claim_text,
    explain,
    print_statement,
    statement_heads,
    statement_rows,
)


class Statement(dict[str, Any]):
    """The claim, the guarantees that hold, and their assumptions; the keys are the same as in JSON.

    The keys are "schema_version", "claim", "guarantees" and "warnings"; docs/privacy/notions.md
    explains them.
    """

    def __repr__(self) -> str:
        from rich.console import Console

        text = io.StringIO()
        # Otherwise, in Jupyter, rich would show the lines at once and leave the string empty.
        print_statement(Console(file=text, width=100, color_system=None, force_jupyter=False), self)
        return text.getvalue().rstrip()

    def _repr_html_(self) -> str:
        warnings = "".join(f"<p><b>warning</b> {escape(text)}</p>" for text in self["warnings"])
        return (
            f"<p><b>claim</b> {escape(claim_text(self['claim']))}</p>"
            + html_table(statement_heads(self), statement_rows(self))
            + f"<p>{escape(explain(self))}</p>{warnings}"
        )


def html_table(heads: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """Return a table as HTML."""
    top = "".join(f"<th>{escape(head)}</th>" for head in heads)
    body = "".join(
        "<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table>"
