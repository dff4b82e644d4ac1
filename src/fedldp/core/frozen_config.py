"""Frozen settings of which no copy goes unchecked."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, SerializerFunctionWrapHandler, model_serializer


@dataclass(frozen=True)
class LeftOut:
    """Marks a setting, in its ``Annotated`` type, that is written only where it is not its default.

    It is for every setting that comes after others were published. What was written without it
    (run folders, run names, agreements, what clients were told) then stays as it was, to the byte,
    for all who do not use the setting. Its default may never change: nothing written says it.
    """


LEFT_OUT = LeftOut()


class FrozenConfig(BaseModel):
    """Settings that are checked when they are made, copied, or become a part of others.

    pydantic's own ``model_copy`` takes an update as it is: a copy could then have an epsilon that
    nobody has looked at.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="always")

    @model_serializer(mode="wrap")
    def _written(self, write: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out what is marked ``LEFT_OUT`` and has its default; what is marked comes last."""
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
        """Return the settings that ``model_dump`` may leave out, with what it leaves out."""
        fields = cls.model_fields
        return {
            name: fields[name].get_default(call_default_factory=True)
            for name in _late(cls)
            if LEFT_OUT in fields[name].metadata
        }

    def every_setting(self) -> dict[str, Any]:
        """Return all settings as ``model_dump`` does, those too that it leaves out."""
        found = self.model_dump()
        return {
            name: found[name] if name in found else getattr(self, name)
            for name in type(self).model_fields
        }

    def changed(self, **settings: Any) -> Self:
        """Return a copy with some settings changed, checked again."""
        return type(self).model_validate({**self.model_dump(), **settings})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy as ``changed`` does; it shares nothing, ``deep`` or not."""
        return self.changed(**(update or {}))

    def copy(self, *, update: Mapping[str, Any] | None = None, **_: Any) -> Self:
        """Return a copy as ``changed`` does."""
        return self.changed(**(update or {}))


@cache
def _late(owner: type[BaseModel]) -> tuple[str, ...]:
    """Return the settings that a class, or one that it is made of, marks as ``LEFT_OUT``."""
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
