"""One-line messages for settings that pydantic refuses; each reports the first wrong setting."""

from __future__ import annotations

from collections.abc import Mapping
from difflib import get_close_matches
from typing import Any, get_args, get_origin

from pydantic import BaseModel, ValidationError

_LONGEST = 60
"""The largest number of characters of a value that a message shows."""

_REMEDIES = {
    "int_type": "a whole number",
    "int_parsing": "a whole number",
    "int_from_float": "a whole number",
    "float_type": "a number",
    "float_parsing": "a number",
    "finite_number": "a finite number",
    "bool_type": "true or false",
    "bool_parsing": "true or false",
    "string_type": "a text",
    "list_type": "a list, such as [1, 2]",
    "tuple_type": "a list, such as [1, 2]",
    "too_long": "at most {max_length} items",
    "too_short": "at least {min_length} items",
    "greater_than": "a number above {gt}",
    "greater_than_equal": "a number of at least {ge}",
    "less_than": "a number below {lt}",
    "less_than_equal": "a number of at most {le}",
}
"""What to give instead, for each kind of error that pydantic reports, with its limits."""


def _inside(field: Any) -> Mapping[str, Any]:
    """Return the settings in a setting that is a table, or several tables; {} for others."""
    kinds = get_args(field.annotation) or (field.annotation,)
    kinds = tuple(each for each in kinds if each not in (type(None), ...))
    if len(kinds) == 1 and isinstance(kinds[0], type) and issubclass(kinds[0], BaseModel):
        return kinds[0].model_fields
    return {}


def describe(error: ValidationError, system: str, fields: Mapping[str, Any]) -> str:
    """Return a one-line message about the first setting that is wrong.

    A setting that is missing comes after the others, because one of these may be its misspelling.

    Args:
        error: the error about a system's configuration.
        system: the system's name.
        fields: the system's settings, by name.
    """
    errors = sorted(
        error.errors(), key=lambda each: each["type"] == "missing" and len(each["loc"]) == 1
    )
    setting = errors[0]["loc"][:1]
    # If one number or a list may be given, the most specific error is about an element of the list.
    first = max((e for e in errors if e["loc"][:1] == setting), key=lambda e: len(e["loc"]))
    loc, owner = first["loc"], system
    name = str(loc[0]) if loc else "settings"
    inner = [part for part in loc[1:] if isinstance(part, str)]
    table = _inside(fields[name]) if name in fields else {}
    if table and inner:
        name, owner, fields = f"{name}.{inner[0]}", name, table
    else:
        if inner and get_origin(getattr(fields.get(name), "annotation", None)) is dict:
            name += f".{inner[0]}"  # a column's name
        name += "".join(f"[{place}]" for place in loc if isinstance(place, int))
    if first["type"] == "extra_forbidden":
        close = " or ".join(get_close_matches(name.rpartition(".")[2], fields, n=2))
        hint = f"did you mean {close}? " if close else ""
        if name == "epsilon" and "target" in fields:
            hint = "its noise is solved for a guarantee: set target.epsilon instead. "
        if owner == system:
            return (
                f"{name} is not a setting of {owner}; {hint}`fedldp show {system}` lists them all"
            )
        return f"{name} is not a setting of {owner}; {hint}It has {', '.join(fields)}"
    own = first["type"] == "missing" and len(loc) > 1 and not table
    if first["type"] == "missing" and not own:
        return f"{name} is not set, but {owner} needs it: add {name} = ..."
    if name == "system" and first["type"] == "literal_error":
        return (
            f"system = {shown(first['input'])}: this recipe is for {system}, and each system has "
            "its own settings; choose another recipe (see `fedldp list recipes`), or write a "
            f".toml file with system = {shown(first['input'])}"
        )
    message = first["msg"][0].lower() + first["msg"][1:]
    if own:
        message = "give a number"
    elif table and name == loc[0]:
        own_settings = ", ".join(f"{name}.{key}" for key in table)
        message = f"this is a table of settings: give {own_settings}"
    elif first["type"] == "literal_error":
        message = f"choose {first['ctx']['expected'].replace(chr(39), '')}"
    elif first["type"] == "string_type" and callable(first["input"]):
        message = 'give your own code by its address, the text "module:NAME"'
    elif first["type"] in _REMEDIES:
        limits = first.get("ctx", {}).items()
        given = {key: f"{value:g}" if isinstance(value, float) else value for key, value in limits}
        message = f"give {_REMEDIES[first['type']].format(**given)}"
    return f"{name} = {shown(first['input'])}: {message}"


def shown(value: Any) -> str:
    """Return a value for a message, shortened if it is long; booleans as TOML writes them."""
    try:
        text = str(value).lower() if isinstance(value, bool) else " ".join(str(value).split())
    except (RecursionError, ValueError):  # nested too deeply, or too many digits
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
