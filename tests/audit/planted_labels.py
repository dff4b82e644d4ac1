"""A report of a label and a direction that hides only the direction, and a correct twin."""

from __future__ import annotations

from dataclasses import astuple, dataclass, replace
from typing import Any, ClassVar, Literal

import numpy as np

from fedldp.algorithms.composition import Algorithm
from fedldp.algorithms.problem import Problem
from fedldp.algorithms.release import Release
from fedldp.algorithms.systems import systems
from fedldp.mechanisms.k_closest import FrameChoice, KClosest

composed: Any = systems()["composed"]


@dataclass(frozen=True)
class Planted(Algorithm):
    """The parts of ``composed``, with the mechanism that the configuration names."""

    def release(self, client: int) -> Release:
        found = super().release(client)
        return replace(found, mechanism=self.config.chosen(*astuple(found.mechanism)))


class RightConfig(composed):
    """The correct system; ``planted.changed`` replaces its mechanism."""

    system: Literal["planted_labels:RightConfig"] = "planted_labels:RightConfig"
    chosen: ClassVar[Any] = KClosest

    def algorithm(self, problem: Problem) -> Algorithm:
        return Planted(self, self.composition, problem)


@dataclass(frozen=True)
class WithinTheLabel(FrameChoice):
    """Draws a direction among the label's directions, as if there were no other label."""

    def draw(self, along: Any, streams: Any, own: Any = None) -> Any:
        within = FrameChoice(self.epsilon, self.frames, self.closest).draw(along, streams)
        if own is None:
            return within
        found = own * self.frames.directions + within.astype(np.int64)
        return found.astype("<u2" if self.blocks * self.frames.directions <= 1 << 16 else "<u4")


class LabelInClear(KClosest):
    """See ``WithinTheLabel``: the direction is private, but the label is not."""

    def choice(self, size: int) -> FrameChoice:
        right = super().choice(size)
        return WithinTheLabel(right.epsilon, right.frames, right.closest, right.blocks)


def settings(**more: Any) -> dict[str, Any]:
    """Return settings of clients that report a label and a direction once."""
    return {
        "dataset": "digits", "model": "linear", "num_clients": 100, "rounds": 1, "epsilon": 8.0,
        "local_update": "solution", "one_label": True, "bound": "direction",
        "mechanism": "k_closest", **more,
    }  # fmt: skip
