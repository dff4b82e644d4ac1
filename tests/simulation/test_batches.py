"""Batches come back in order, few wait at a time, and unwanted ones are cancelled."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from fedldp.simulation.in_process import LARGEST, in_order


class Workers:
    """Do nothing, and record the clients that were asked."""

    def __init__(self) -> None:
        self.begun: list[Sequence[int]] = []
        self.waited: list[Sequence[int]] = []
        self.cancelled: list[Sequence[int]] = []

    def begin(self, batch: Sequence[int]) -> Sequence[int]:
        self.begun.append(batch)
        assert len(self.begun) - len(self.waited) <= 2 * 3 + 1
        return batch

    def result(self, task: Sequence[int]) -> int:
        if task[0] == 40:
            raise KeyboardInterrupt
        self.waited.append(task)
        return sum(task)


@pytest.mark.parametrize("group", [1, 4])
@pytest.mark.parametrize("count", [0, 1, 7, 40, 399])
def test_all_items_arrive_in_order_with_their_results(count: int, group: int) -> None:
    workers = Workers()
    found = list(
        in_order(
            range(count),
            3,
            group=group,
            begin=workers.begin,
            result=workers.result,
            cancel=pytest.fail,
        )
    )
    assert [item for batch, _ in found for item in batch] == list(range(count))
    assert all(total == sum(batch) and len(batch) <= group * LARGEST for batch, total in found)
    assert all(len(batch) % group == 0 for batch, _ in found[:-1])


def test_an_interrupt_cancels_batches_that_are_no_longer_awaited() -> None:
    workers = Workers()
    batches = in_order(
        range(100),
        3,
        group=1,
        begin=workers.begin,
        result=workers.result,
        cancel=workers.cancelled.append,
    )
    with pytest.raises(KeyboardInterrupt):
        list(batches)
    assert workers.cancelled[0][0] == 40
    assert workers.waited + workers.cancelled == workers.begun
