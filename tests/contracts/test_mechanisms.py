"""Every mechanism that the setting ``mechanism`` may name keeps the contract of ``Mechanism``."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, mechanisms
from fedldp.mechanisms.gaussian_share import SharedGaussian
from fedldp.testing.mechanisms import check_mechanism

MECHANISMS = mechanisms()
BATCHED = [
    kind
    for kind in (*MECHANISMS.values(), SharedGaussian)
    if kind.encode_many is not Mechanism.encode_many
]


@pytest.mark.slow
@pytest.mark.parametrize("kind", MECHANISMS.values(), ids=MECHANISMS)
def test_a_mechanism_keeps_its_contract(kind: type[Mechanism]) -> None:
    assert [each for each in check_mechanism(kind) if each.verdict == "fails"] == []


def turned(self: Any, values: np.ndarray, stream: Stream) -> bytes:
    """Turn the values round, and encode them as the class does that was extended."""
    found: bytes = next(
        kind.encode
        for kind in type(self).__mro__
        if "encode" in vars(kind) and vars(kind)["encode"] is not turned
    )(self, values[::-1].copy(), stream)
    return found


@pytest.mark.parametrize("kind", BATCHED, ids=lambda kind: kind.name)
@pytest.mark.parametrize("mixed_in", [False, True])
def test_many_vectors_are_encoded_as_a_subclass_encodes_one(
    kind: type[Mechanism], mixed_in: bool
) -> None:
    own = {"encode": turned}
    bases = (type("Turns", (), own), kind) if mixed_in else (kind,)
    made: Any = type("Turning", bases, {} if mixed_in else own)
    mechanism, values = made.examples()[0], np.linspace(-0.9, 0.9, 600).reshape(3, 200)

    def streams() -> list[Stream]:
        return [Stream(bytes([number] * 32), simulated=True) for number in range(3)]

    alone = [mechanism.encode(row, stream) for row, stream in zip(values, streams(), strict=True)]
    assert [row.tobytes() for row in mechanism.encode_many(values, streams())] == alone
    assert [row.tobytes() for row in kind.examples()[0].encode_many(values, streams())] != alone
