"""Frozen settings, which are validated again whenever they are copied."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class FrozenConfig(BaseModel):
    """Settings that are validated when they are made, copied, or placed inside other settings.

    pydantic's own ``model_copy`` does not validate its update: the copy could have an epsilon that
    was never checked.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="always")

    def changed(self, **settings: Any) -> Self:
        """Return a copy with some settings changed, validated again."""
        return type(self).model_validate({**self.model_dump(), **settings})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy as ``changed`` does; it is always deep, whatever ``deep`` is."""
        return self.changed(**(update or {}))

    def copy(self, *, update: Mapping[str, Any] | None = None, **_: Any) -> Self:
        """Return a copy as ``changed`` does."""
        return self.changed(**(update or {}))
