"""For the reference pages: shows examples in docstrings as code, not as quotations.

zensical.toml names this for griffe, which reads the docstrings; nothing else imports it.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

EXAMPLE = re.compile(r"^>>> .*(?:\n.+)*", re.MULTILINE)


class FencedExamples(griffe.Extension):
    """Puts fences around each example that begins with ``>>>``."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring:
            obj.docstring.value = EXAMPLE.sub(
                lambda found: f"```pycon\n{found[0]}\n```", obj.docstring.value
            )

    def on_package(self, *, pkg: griffe.Package, **_: Any) -> None:
        """Change the docstring of the package itself, for which griffe has another event."""
        self.on_object(obj=pkg)
