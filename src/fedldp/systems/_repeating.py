"""What a system says of measurements made with it: for how long they hold, and what they cost."""

from __future__ import annotations

from typing import Any, ClassVar


class Repeating:
    """The part of a configuration that is about measuring its runs; a problem is ``Problem``."""

    semantics: ClassVar[int] = 1
    """Rises whenever the same settings give another result: what was measured before is void."""

    rounds_only_add: ClassVar[bool] = False
    """Whether nothing in a round depends on how many there will be."""

    target: object

    @property
    def longer_begins_with_shorter(self) -> bool:
        """Whether a run of more rounds has the same results in those of a shorter one."""
        return self.rounds_only_add and self.target is None  # a target is solved for all rounds

    def work_before_training(self, problem: Any) -> int:
        """Return how often clients multiply by a weight, forwards, before they train the model."""
        return 0
