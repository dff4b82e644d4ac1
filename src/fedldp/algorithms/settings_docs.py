"""Settings in words: meaning, type, limits and default, from their declarations."""

from __future__ import annotations

import functools
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import tomli_w
from pydantic import BaseModel

from fedldp.core.frozen_config import FrozenConfig

_TYPES = {"string": "text", "boolean": "true or false", "integer": "whole number"}
_SYSTEM = "the system's name"
_WIDTH = 98


@dataclass(frozen=True, kw_only=True)
class Setting:
    """The description of one setting.

    Attributes:
        name: the name of the setting.
        meaning: its meaning in words.
        type: the type of its values, in words.
        default: the default as TOML writes it, or "required", or "not set".
        limits: the limits on its values, if there are any.
    """

    name: str
    meaning: str
    type: str
    default: str
    limits: str | None

    @property
    def in_brackets(self) -> str:
        """Everything except the name and the meaning, as a short text."""
        parts = [self.type, self.limits]
        if self.default != "required":
            parts.append("not set by default" if self.default == "not set" else "")
            parts.append("" if self.default == "not set" else f"default {self.default}")
        return ", ".join(part for part in parts if part)


@functools.cache  # pydantic needs about 20 ms for a class's schema, which never changes
def describe_settings(owner: type[BaseModel]) -> tuple[Setting, ...]:
    """Return the settings of a configuration class, in the order of its fields."""
    document = owner.model_json_schema()
    required = document.get("required", [])
    return tuple(
        Setting(
            name=name,
            meaning=" ".join(found.get("description", _SYSTEM if name == "system" else "").split()),
            type=_type(found, document),
            default="required" if name in required else value_text(found.get("default")),
            limits=_limits(found),
        )
        for name, found in document["properties"].items()
    )


def value_text(value: Any) -> str:
    """Return a value in TOML, on one line."""
    if value is None or value == {}:
        return "not set"
    if isinstance(value, Mapping):
        inner = (f"{key_text(key)} = {value_text(v)}" for key, v in value.items() if v is not None)
        return f"{{ {', '.join(inner)} }}"
    if isinstance(value, list | tuple):
        return f"[{', '.join(map(value_text, value))}]"
    return tomli_w.dumps({"value": value}).removeprefix("value = ").strip()


def key_text(name: str) -> str:
    """Return a key in TOML, quoted if necessary."""
    return tomli_w.dumps({name: 0}).rpartition(" = ")[0]


def commented_toml(config: FrozenConfig) -> str:
    """Return a configuration as TOML, each setting under a comment that explains it."""
    values = config.model_dump() | config.model_dump(exclude_none=True)
    plain: list[str] = []
    tables: list[str] = []
    for setting in describe_settings(type(config)):
        value = values.get(setting.name)
        text = f"{setting.meaning} ({setting.in_brackets})"
        if value is None or value == {}:
            plain.append(_comment(f"{setting.name} is not set: {text}"))
        elif isinstance(value, Mapping):
            tables.append(_comment(text) + tomli_w.dumps({setting.name: value}))
        else:
            plain.append(_comment(text) + tomli_w.dumps({setting.name: value}))
    return "\n".join(plain + tables)


def _comment(text: str) -> str:
    lines = textwrap.wrap(text, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "".join(f"# {line}\n" for line in lines)


def _choices(found: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    return [each for each in found.get("anyOf", [found]) if each.get("type") != "null"]


def _type(found: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    kinds = [_one_type(each, document) for each in _choices(found)]
    return " or ".join(dict.fromkeys(kind for kind in kinds if kind))


def _one_type(found: Mapping[str, Any], document: Mapping[str, Any]) -> str:
    if "$ref" in found or "allOf" in found:
        reference = found.get("$ref") or found["allOf"][0]["$ref"]
        inner = document["$defs"][reference.rpartition("/")[2]]
        if inner.get("title") == "ClientValue":
            return ""  # a client receives only its own value from the list
        return f"table of {', '.join(inner['properties'])}"
    if "const" in found:
        return value_text(found["const"])
    if "enum" in found:
        return " or ".join(map(value_text, found["enum"]))
    if found.get("type") == "array":
        return f"list of {_type(found['items'], document)}"
    if found.get("type") == "object":
        return f"table of {_type(found['additionalProperties'], document)} by name"
    return _TYPES.get(found.get("type", ""), "number")


def _limits(found: Mapping[str, Any]) -> str | None:
    # A list's limits apply to its elements; the setting's description gives the list's length.
    for each in _choices(found):
        inner = each.get("items", each)
        low = [f"{inner['minimum']:g} or more"] if "minimum" in inner else []
        low += [f"above {inner['exclusiveMinimum']:g}"] if "exclusiveMinimum" in inner else []
        high = [f"at most {inner['maximum']:g}"] if "maximum" in inner else []
        high += [f"below {inner['exclusiveMaximum']:g}"] if "exclusiveMaximum" in inner else []
        if low or high:
            return ", ".join(low + high)
    return None
