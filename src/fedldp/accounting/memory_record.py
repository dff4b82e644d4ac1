"""What was released in one run, to a JSON-ready record and back, column by column.

A column of which all elements are equal is one element; any other is its bytes in base64. So alike
clients are a few lines of text, and others little more than in memory.
"""

from __future__ import annotations

import base64
import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.check import check_count
from fedldp.accounting.events import Event
from fedldp.accounting.ledger import QUESTION_BYTES
from fedldp.accounting.memory_run import LARGEST_CLIENT, LARGEST_ROUND, Places, Run
from fedldp.accounting.memory_shape import Shape
from fedldp.accounting.releases import WORD
from fedldp.errors import ConfigError

_PART = 2**16
"""Clients that are checked at once."""


def run_to_record(run: Run, events: dict[Event, int]) -> dict[str, Any]:
    """Return a JSON-ready record, in which an event is its place among ``events``."""

    def place(event: Event) -> int:
        return events.setdefault(event, len(events))

    clients, rows = run.known()
    numbers = run.shape_of[rows]
    first = np.full(len(run.shapes), numbers.size, np.int32)
    first[numbers[::-1]] = np.arange(numbers.size, dtype=np.int32)[::-1]  # the last one counts
    order = np.argsort(first, kind="stable")[: np.count_nonzero(first < numbers.size)]
    shapes = [run.shapes[number] for number in order.tolist()]
    to = np.zeros(len(run.shapes), np.int32)
    to[order] = np.arange(order.size)
    kinds = np.array([len(shape.kinds) for shape in run.shapes], np.int32)
    return {
        "shapes": [
            {
                "round": shape.round,
                "answered": [[x, asked.hex(), place(e)] for x, asked, e in shape.answered],
                "kinds": [[place(event), exchange] for event, exchange in shape.kinds],
            }
            for shape in shapes
        ],
        "clients": pack_indices(clients),
        "shape_of": _pack(to[numbers]),
        "rounds": [
            [
                [word, *_pack(bits)]
                for word, bits in run.words_of(kind, rows[kinds[numbers] > kind]).items()
            ]
            for kind in range(kinds[order].max(initial=0))
        ],
        "server": [[place(event), f"{rounds:x}"] for event, rounds in run.server.items()],
    }


def run_from_record(record: Mapping[str, Any], events: Mapping[int, Event]) -> Run:
    """Return the run of a record. What was answered is known, and not what the answers were.

    Raises:
        ConfigError, LookupError, ValueError, TypeError: the record is damaged.
    """
    run = Run()
    run.server = {events[place]: int(rounds, 16) for place, rounds in record["server"]}
    numbers = [run.number(_shape(each, events)) for each in record["shapes"]]
    if len(set(numbers)) < len(numbers):
        raise ConfigError("what clients share stands there twice")
    rows = run.rows(unpack_indices(record["clients"]))
    of_client = _unpack(record["shape_of"], rows.size)
    if of_client.max(initial=0) >= max(1, len(numbers)):
        raise ConfigError("a client has no shape")
    run.shape_of[rows] = np.array(numbers, np.int32)[of_client]
    counts = np.array([len(shape.kinds) for shape in run.shapes], np.int32)
    kinds = counts[run.shape_of[rows]]
    if kinds.max(initial=0) != len(record["rounds"]):
        raise ConfigError("rounds are of no kind")
    for kind, words in enumerate(record["rounds"]):
        there = rows[kinds > kind]
        for word, *packed in words:
            check_count("word", word)
            bits = _unpack(packed, there.size)
            if word > LARGEST_ROUND // WORD or bits.max() >= 1 << WORD:
                raise ConfigError("a word of rounds is damaged")
            run.word(kind, word)[there] = bits
    _check_rounds(run, rows)
    return run


def _shape(record: Mapping[str, Any], events: Mapping[int, Event]) -> Shape:
    answered = tuple((x, bytes.fromhex(asked), events[e]) for x, asked, e in record["answered"])
    kinds = tuple((events[event], exchange) for event, exchange in record["kinds"])
    for exchange in (*(x for x, _, _ in answered), *(x for _, x in kinds)):
        check_count("exchange", exchange)
    check_count("round", record["round"])
    if record["round"] > LARGEST_ROUND:
        raise ConfigError("a round is beyond the last")
    if any(len(question) != QUESTION_BYTES for _, question, _ in answered):
        raise ConfigError("a question's digest is cut")
    once = len({x for x, _, _ in answered}) == len(answered) and len(set(kinds)) == len(kinds)
    if not (answered and once and {(event, x) for x, _, event in answered} <= set(kinds)):
        raise ConfigError("what was answered last is damaged")
    return Shape(record["round"], answered, kinds)


def _check_rounds(run: Run, rows: Places) -> None:
    """Raise ConfigError unless clients released what their shapes say in their latest rounds.

    Nothing later; and each kind in the latest one or, if it was not answered so, in an earlier one.
    """
    rounds = np.array([shape.round for shape in run.shapes])
    counts = np.array([len(shape.kinds) for shape in run.shapes])
    for kind in range(counts.max()):
        is_last = np.array([_is_last(shape, kind) for shape in run.shapes])
        for part in np.array_split(rows, 1 + rows.size // _PART):  # for less memory
            numbers = run.shape_of[part]
            latest, last, has = rounds[numbers], is_last[numbers], counts[numbers] > kind
            found = np.full(part.size, -1, np.int64)
            for word, bits in run.words_of(kind, part).items():
                _, width = np.frexp(bits.astype(np.float64))  # 0 of 0
                found = np.where(width > 0, word * WORD + width - 1, found)
            sound = np.where(last, found == latest, (found >= 0) & (found < latest))
            if not np.where(has, sound, found < 0).all():
                raise ConfigError("a latest round is damaged")


def _is_last(shape: Shape, kind: int) -> bool:
    return shape.kinds[kind : kind + 1] in [((event, x),) for x, _, event in shape.answered]


def pack_indices(indices: Places) -> list[int] | dict[str, Any]:
    """Return ascending indices as first and last of each range, or as bits, whichever is less.

    >>> pack_indices(np.array([0, 1, 2, 7]))
    [0, 2, 7, 7]
    """
    if not indices.size:
        return []
    if indices[-1] - indices[0] == indices.size - 1:
        return [int(indices[0]), int(indices[-1])]
    ends = np.flatnonzero(np.diff(indices) != 1)
    first, last = indices[np.append(0, ends + 1)], indices[np.append(ends, indices.size - 1)]
    span = int(indices[-1] - indices[0]) + 1
    if 16 * first.size <= span / 6:  # in digits, about
        return np.stack([first, last], axis=1).ravel().tolist()
    there = np.zeros(span, np.bool_)
    there[indices - indices[0]] = True
    return {"first": int(indices[0]), "bits": _text(np.packbits(there))}


def unpack_indices(packed: list[int] | Mapping[str, Any]) -> Places:
    """Return the indices that ``pack_indices`` has packed.

    Raises:
        ConfigError, LookupError, ValueError, TypeError: they are damaged.
    """
    if isinstance(packed, Mapping):
        first = packed["first"]
        check_count("client", first)
        bits = np.unpackbits(_bytes(packed["bits"]))
        found: Places = np.flatnonzero(bits) + min(first, LARGEST_CLIENT)
    else:
        for index in packed:
            check_count("client", index)
        pairs = list(zip(packed[::2], packed[1::2], strict=True))
        ascending = all(a <= b <= LARGEST_CLIENT for a, b in pairs)
        if not ascending or any(b >= a for (_, b), (a, _) in itertools.pairwise(pairs)):
            raise ConfigError("ranges of clients are damaged")
        found = np.concatenate([np.zeros(0, np.int64), *(np.arange(a, b + 1) for a, b in pairs)])
    if found.max(initial=0) > LARGEST_CLIENT:
        raise ConfigError("a client is beyond the last")
    return found


def _pack(column: NDArray[Any]) -> list[int | str]:
    """Return integers as the bytes that each takes, and their text; once, if all are equal."""
    width = next(n for n in (1, 2, 4, 8) if int(column.max(initial=0)) < 256**n)
    alike = column.size > 0 and bool((column == column[0]).all())
    return [width, _text((column[:1] if alike else column).astype(f"<u{width}"))]


def _unpack(packed: Sequence[Any], count: int) -> NDArray[Any]:
    width, text = packed
    if width not in (1, 2, 4, 8):
        raise ConfigError(f"{width!a:.20} bytes are of no column")
    values = _bytes(text).view(f"<u{width}")
    if values.size not in (1, count) or (values.size and not count):
        raise ConfigError("a column is cut")
    return np.broadcast_to(values, count)


def _text(column: NDArray[Any]) -> str:
    return base64.b64encode(column.tobytes()).decode()


def _bytes(text: str) -> NDArray[np.uint8]:
    return np.frombuffer(base64.b64decode(text, validate=True), np.uint8)
