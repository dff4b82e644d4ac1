"""Frozen settings of which no copy goes unchecked."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pydantic import BaseModel, ConfigDict


class Checked(BaseModel):
    """Settings that are checked when they are made, copied, or become a part of others.

    pydantic's own ``model_copy`` takes an update as it is: a copy could then have an epsilon that
    nobody has looked at.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", revalidate_instances="always")

    def changed(self, **settings: Any) -> Self:
        """Return a copy with some settings changed, checked again."""
        return type(self).model_validate({**self.model_dump(), **settings})

    def model_copy(self, *, update: Mapping[str, Any] | None = None, deep: bool = False) -> Self:
        """Return a copy as ``changed`` does; it shares nothing, ``deep`` or not."""
        return self.changed(**(update or {}))

    def copy(self, *, update: Mapping[str, Any] | None = None, **_: Any) -> Self:
        """Return a copy as ``changed`` does."""
        return self.changed(**(update or {}))
