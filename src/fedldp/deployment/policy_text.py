"""Adds to the text of a site's policy; what its owner wrote stays, with the comments."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Mapping, Sequence
from typing import Any

import tomli_w

from fedldp.core.errors import ConfigError


def with_values(text: str, setting: str, values: Sequence[str]) -> str:
    """Return a policy's text with more values in one of its lists.

    Raises:
        ConfigError: the list is not found in the text.
    """
    found = tomllib.loads(text)
    meant = {**found, setting: [*found[setting], *values]}
    more = ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
    for end in (at for at, letter in enumerate(text) if letter == "]"):
        for between in (", ", ""):  # the list may end with a comma, or be empty
            changed = f"{text[:end]}{between}{more}{text[end:]}"
            if _is(changed, meant):
                return changed
    raise ConfigError(f"{setting}: add {more} to this list in the policy, and join again")


def with_table(text: str, name: str, table: Mapping[str, Any]) -> str:
    """Return a policy's text with one more table [[name]] at its end.

    Raises:
        ConfigError: the text has such tables in another form.
    """
    meant = tomllib.loads(text)
    meant[name] = [*meant.get(name, ()), dict(table)]
    plain = {key: value for key, value in table.items() if not isinstance(value, dict)}
    changed = f"{text.rstrip()}\n\n[[{name}]]\n{tomli_w.dumps(plain)}"
    for key in table.keys() - plain.keys():
        changed += f"\n[{name}.{key}]\n{tomli_w.dumps(table[key])}"
    if _is(changed, meant):
        return changed
    raise ConfigError(f"{name}: write it as a table [[{name}]] in the policy, and join again")


def _is(text: str, meant: Mapping[str, Any]) -> bool:
    try:
        return tomllib.loads(text) == meant
    except tomllib.TOMLDecodeError:
        return False
