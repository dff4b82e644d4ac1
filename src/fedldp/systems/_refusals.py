"""Words for settings that pydantic refuses: one line on the first that is wrong."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import ValidationError

_LIMITS = {
    "greater_than": ("gt", "above"),
    "greater_than_equal": ("ge", "of at least"),
    "less_than": ("lt", "below"),
    "less_than_equal": ("le", "of at most"),
}


def describe(
    error: ValidationError, system: str, fields: Mapping[str, Any], nested: Mapping[str, Any]
) -> str:
    """Return one line on the first setting that is wrong.

    Args:
        error: of a system's configuration.
        system: its name.
        fields: its settings, by name.
        nested: of settings that have settings of their own, those, by the setting's name.
    """
    errors = error.errors()
    setting = errors[0]["loc"][:1]
    # Where one number or a list may be given, what gets furthest is about a list's own element.
    first = max((e for e in errors if e["loc"][:1] == setting), key=lambda e: len(e["loc"]))
    loc, owner = first["loc"], system
    name = str(loc[0]) if loc else "settings"
    if name in nested and len(loc) > 1:
        name, owner, fields = f"{name}.{loc[1]}", name, nested[name]
    name += "".join(f"[{place}]" for place in loc if isinstance(place, int))
    if first["type"] == "extra_forbidden":
        return f"{name} is no setting of {owner}; it has {', '.join(fields)}"
    if first["type"] == "missing":
        return f"{name} is not set, and {owner} needs it: add {name} = ..."
    message = first["msg"][0].lower() + first["msg"][1:]
    if first["type"] in _LIMITS:
        key, relation = _LIMITS[first["type"]]
        limit = first["ctx"][key]
        shown = f"{limit:g}" if isinstance(limit, float) else str(limit)
        message = f"give a number {relation} {shown}"
    return f"{name} = {first['input']}: {message}"
