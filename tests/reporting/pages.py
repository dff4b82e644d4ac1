"""A page as the standard library reads it, for the tests of reports."""

from __future__ import annotations

from html.parser import HTMLParser
from typing import Any

SMALL: dict[str, Any] = {"num_clients": 6, "rounds": 3, "local_epochs": 1}
"""Settings of the runs for reports."""

VOID = {"meta", "link", "br", "hr", "img", "input"}


class Page(HTMLParser):
    """The contents of a page: its elements with their attributes, in order, and its text by
    element."""

    def __init__(self, document: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.texts: list[tuple[str, str]] = []
        self._open: list[str] = []
        self.feed(document)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def handle_endtag(self, tag: str) -> None:
        assert self._open.pop() == tag, f"</{tag}> closes another element"

    def handle_data(self, data: str) -> None:
        self.texts.append((self._open[-1] if self._open else "", data))

    def text(self, *tags: str) -> str:
        """Return the page's text, or that of some elements, with single spaces."""
        parts = [text for tag, text in self.texts if not tags or tag in tags]
        return " ".join(" ".join(parts).split())

    def all(self, tag: str) -> list[dict[str, str | None]]:
        """Return the attributes of every element of a kind."""
        return [attributes for name, attributes in self.elements if name == tag]
