"""Frozen settings, which are validated again whenever they are copied."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


@dataclass(frozen=True)
class LeftOut:
    """Part of a setting's ``Annotated`` type: the setting is not written if it has its default.

    Use it for every setting that is added after other settings were published. Run folders, run
    names, agreements, and statements that clients have received then stay the same, byte for byte,
    for everyone who does not use the setting. The setting's default must never change, because
    files written without the setting do not record it.
    """


LEFT_OUT = LeftOut()


class FrozenConfig(BaseModel):
    """Settings that are validated when they are made, copied, or placed inside other settings.

    pydantic's own ``model_copy`` does not validate its update: the copy could have an epsilon that
    was never checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="always")

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out marked settings that have their defaults; write other marked settings last."""
        found: dict[str, Any] = write(self)
        defaults = self.left_out()
        for name in _late(type(self)):
            if name in found:
                value = found.pop(name)
                if name not in defaults or getattr(self, name) != defaults[name]:
                    found[name] = value
        return found

    @classmethod
    def left_out(cls) -> dict[str, Any]:
        """Return the settings that ``model_dump`` may leave out, with their defaults."""
        fields = cls.model_fields
        return {
            name: fields[name].get_default(call_default_factory=True)
            for name in _late(cls)
            if LEFT_OUT in fields[name].metadata
        }

    def every_setting(self) -> dict[str, Any]:
        """Return all settings as ``model_dump`` does, including those that it leaves out."""
        found = self.model_dump()
        return {
            name: found[name] if name in found else getattr(self, name)
            for name in type(self).model_fields
        }

    def changed(self, **settings: Any) -> Self:
        """Return a copy with some settings changed, validated again."""
        return type(self).model_validate({**self.model_dump(), **settings})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy as ``changed`` does; it is always deep, whatever ``deep`` is."""
        return self.changed(**(update or {}))

    def copy(self, *, update: Mapping[str, Any] | None = None, **_: Any) -> Self:
        """Return a copy as ``changed`` does."""
        return self.changed(**(update or {}))


@cache
def _late(owner: type[BaseModel]) -> tuple[str, ...]:
    """Return the settings that a class, or one of its bases, marks as ``LEFT_OUT``."""
    made_of = [base for base in owner.__mro__ if issubclass(base, BaseModel)]
    return tuple(
        name
        for name in owner.model_fields
        if any(
            LEFT_OUT in base.model_fields[name].metadata
            for base in made_of
            if name in base.model_fields
        )
    )
