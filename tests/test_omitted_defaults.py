"""A setting that was added later is written only if it differs from its default."""

from __future__ import annotations

import json
from typing import Annotated

import pytest
from pydantic import Field

from fedldp.algorithms.systems import with_left_out
from fedldp.core.frozen_config import LEFT_OUT, FrozenConfig


class Inner(FrozenConfig):
    unit: str = "client"
    column: Annotated[str | None, LEFT_OUT] = None


class Before(FrozenConfig):
    first: int = 1
    inner: Inner | None = None


class After(Before):
    rate: Annotated[float, Field(gt=0), LEFT_OUT] = 1.0
    names: Annotated[list[str], LEFT_OUT] = Field(default_factory=list)
    last: str = "z"


class Published(After):
    """A system that had the setting before others did, so always writes it."""

    rate: Annotated[float, Field(gt=0)] = 1.0


def test_defaults_are_left_out_and_nothing_else_is() -> None:
    assert After().model_dump() == {"first": 1, "inner": None, "last": "z"}
    assert After(rate=2.0).model_dump() == {"first": 1, "inner": None, "last": "z", "rate": 2.0}
    assert After(names=["a"]).model_dump_json() == (
        '{"first":1,"inner":null,"last":"z","names":["a"]}'
    )
    assert list(Published().model_dump()) == ["first", "inner", "last", "rate"]
    inner = After(inner=Inner(column="x"))
    assert inner.model_dump()["inner"] == {"unit": "client", "column": "x"}
    assert After(inner=Inner()).model_dump()["inner"] == {"unit": "client"}
    assert After(rate=2.0).model_dump(exclude={"first", "inner"}) == {"last": "z", "rate": 2.0}
    assert After.left_out() == {"rate": 1.0, "names": []}
    assert Published.left_out() == {"names": []}


@pytest.mark.parametrize("made", [After(), After(rate=3.0, names=["a"]), Published(rate=0.5)])
def test_a_written_configuration_is_read_back(made: FrozenConfig) -> None:
    assert type(made).model_validate(json.loads(made.model_dump_json())) == made
    assert made.changed(first=2).changed(first=1) == made
    assert made.every_setting().keys() == type(made).model_fields.keys()
    assert type(made).model_validate(made.every_setting()) == made


def test_a_written_configuration_of_another_system_stays_as_it_is() -> None:
    assert with_left_out({"system": "a:B", "x": 1}) == {"system": "a:B", "x": 1}
    assert with_left_out({}) == {}
