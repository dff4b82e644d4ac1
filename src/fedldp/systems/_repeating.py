"""What a system says of measurements that were made with it: for how long they hold."""

from __future__ import annotations

from typing import ClassVar


class Repeating:
    """The part of a system's configuration that says what repeats an earlier run."""

    semantics: ClassVar[int] = 1
    """Rises whenever the same settings give another result: what was measured before is void."""

    rounds_only_add: ClassVar[bool] = False
    """Whether nothing in a round depends on how many there will be."""

    target: object

    @property
    def longer_begins_with_shorter(self) -> bool:
        """Whether a run of more rounds has the same results in those of a shorter one."""
        return self.rounds_only_add and self.target is None  # a target is solved for all rounds
