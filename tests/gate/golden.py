"""Recorded documents: readable JSON, and the differences between a record and a current result.

A document is recorded with a fingerprint of the arithmetic that made it. If the fingerprint is
equal, the current result must be equal to the last bit; otherwise texts must be equal, and numbers
nearly so.
"""

from __future__ import annotations

import functools
import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import scipy.fft
import scipy.linalg
import scipy.special
import torch
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from fedldp.training.tensors import one_thread

FOLDER = Path(__file__).parent
LARGEST = 1 << 20
"""The most bytes that a recorded file may have."""

TOLERANCE = 1e-11
"""Relative tolerance of a statement's numbers with other arithmetic; up to 1e-12 was observed."""

TOLERANCES = {"lower": 1e-8}
"""The same for numbers found by a search, which may stop one step later; up to 1.5e-9 was
observed."""


# What computes the last digit


@contextmanager
def one_core() -> Iterator[None]:
    """Let BLAS and torch compute in one thread: several threads add sums in another order."""
    with threadpool_limits(1, user_api="blas"), one_thread():
        yield


@functools.cache
@one_core()
def arithmetic() -> str:
    """Return a fingerprint of the arithmetic of statements: numpy and scipy in float64.

    Their kernels depend on the processor, and so does the last digit.
    """
    x = np.linspace(0.01, 29.7, 20011)
    numpy_ = [f(x) for f in (np.log, np.log1p, np.sqrt, np.sin, np.tanh, np.cumsum)]
    numpy_ += [np.exp(-x), np.expm1(-x), x**1.7, np.logaddexp(x, 1)]
    parts = [(np.exp(-x[:n]), x[:n]) for n in range(1, len(x), 37)]
    numpy_ += [np.array([f(*part) for part in parts for f in (np.dot, _sum)])]
    special = [scipy.special.gammaln(x), scipy.special.ndtr(x), scipy.special.log_ndtr(-x)]
    special += [scipy.special.logsumexp(x[None]), scipy.special.xlogy(x, x)]
    transforms = [scipy.fft.irfft(scipy.fft.rfft(x, 2048) ** 3, 2048)]
    plain = [np.array([math.exp(-v) + math.log(v) + math.lgamma(v) for v in x[:97].tolist()])]
    return _digest([*numpy_, *special, *transforms, *plain])


@functools.cache
@one_core()
def training() -> str:
    """Return a fingerprint of the arithmetic of runs: that of statements, and torch in float32."""
    generator = np.random.Generator(np.random.PCG64(5))
    images = torch.from_numpy(generator.standard_normal((64, 1, 8, 8), np.float32))
    labels = torch.from_numpy(generator.integers(0, 10, 64))
    made = [
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10)),
        torch.nn.Sequential(
            torch.nn.Conv2d(1, 4, 3), torch.nn.ReLU(), torch.nn.MaxPool2d(2),
            torch.nn.Flatten(), torch.nn.Linear(36, 10), torch.nn.Tanh(),
        ),
    ]  # fmt: skip
    found = [np.frombuffer(arithmetic().encode(), np.uint8)]
    for model in made:
        for weights in model.parameters():
            given = generator.standard_normal(tuple(weights.shape), np.float32)
            weights.data.copy_(torch.from_numpy(given / 8))
        for some in (slice(0, 10), slice(0, 64)):
            loss = torch.nn.functional.cross_entropy(model(images[some]), labels[some])
            model.zero_grad()
            loss.backward()
            with torch.no_grad():
                for weights in model.parameters():
                    assert weights.grad is not None
                    weights -= 0.1 * weights.grad
        found += [weights.detach().numpy() for weights in model.parameters()]
    both = torch.from_numpy(generator.standard_normal((64, 10, 64), np.float32))
    found.append(torch.bmm(both, both.transpose(1, 2)).numpy())
    large = generator.standard_normal((130, 700))
    found += [large @ large.T, np.linalg.norm(large, axis=1), large.astype(np.float32).sum(axis=0)]
    found += [generator.standard_normal(500), generator.laplace(size=500)]
    return _digest(found)


def _sum(one: NDArray[np.float64], other: NDArray[np.float64]) -> np.float64:
    return (one * other).sum()


def _digest(arrays: list[Any]) -> str:
    parts = [np.ascontiguousarray(array).tobytes() for array in arrays]
    return hashlib.sha256(b"".join(parts)).hexdigest()[:16]


# Differences


def differences(
    recorded: Any,
    found: Any,
    *,
    tolerance: float | None = None,
    tolerances: Mapping[str, float] = TOLERANCES,
    place: str = "",
) -> Iterator[str]:
    """Yield a description of each difference between two documents.

    Args:
        recorded: the recorded document.
        found: the current document.
        tolerance: relative tolerance of floats; None for equality to the last bit. All else must be
            equal, including the order of keys and the types of numbers.
        tolerances: tolerances for numbers below some keys, if ``tolerance`` is not None.
        place: the position of the two in the document.
    """
    if isinstance(recorded, dict) and isinstance(found, dict):
        for key in recorded:
            where = f"{place}/{key}"
            if key not in found:
                yield f"{where}: {_short(recorded[key])} -> gone"
            else:
                here = tolerance and tolerances.get(key, tolerance)
                yield from differences(
                    recorded[key], found[key], tolerance=here, tolerances=tolerances, place=where
                )
        for key in found:
            if key not in recorded:
                yield f"{place}/{key}: new -> {_short(found[key])}"
        if recorded.keys() == found.keys() and list(recorded) != list(found):
            yield f"{place}: the order of keys {list(recorded)} -> {list(found)}"
    elif isinstance(recorded, list) and isinstance(found, list):
        for index, (one, other) in enumerate(zip(recorded, found, strict=False)):
            where = f"{place}/{index}"
            yield from differences(
                one, other, tolerance=tolerance, tolerances=tolerances, place=where
            )
        for index in range(len(found), len(recorded)):
            yield f"{place}/{index}: {_short(recorded[index])} -> gone"
        for index in range(len(recorded), len(found)):
            yield f"{place}/{index}: new -> {_short(found[index])}"
    elif not _equal(recorded, found, tolerance):
        yield f"{place}: {_short(recorded)} -> {_short(found)}"


def changes(
    recorded: dict[str, Any],
    found: dict[str, Any],
    *,
    nearly: Callable[[Any], Any] = lambda document: document,
    tolerance: float = TOLERANCE,
    tolerances: Mapping[str, float] = TOLERANCES,
) -> Iterator[str]:
    """Yield the changes of a recorded document with its "arithmetic"; see ``differences``.

    With the same arithmetic, every bit counts; otherwise numbers may differ a little.

    Args:
        recorded: the recorded document.
        found: the current document.
        nearly: removes what is not compared with other arithmetic.
        tolerance: that of floats with other arithmetic.
        tolerances: see ``differences``.
    """
    rest = {key: value for key, value in recorded.items() if key != "arithmetic"}
    now = {key: value for key, value in found.items() if key != "arithmetic"}
    if recorded.get("arithmetic") == found["arithmetic"]:
        yield from differences(rest, now)
    else:
        yield from differences(
            nearly(rest), nearly(now), tolerance=tolerance, tolerances=tolerances
        )


def _equal(recorded: Any, found: Any, tolerance: float | None) -> bool:
    if type(recorded) is not type(found):
        return False
    if tolerance is not None and isinstance(recorded, float):
        return math.isclose(recorded, found, rel_tol=tolerance)
    return json.dumps(recorded) == json.dumps(found)  # -0.0 is not 0.0


def _short(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 300 else f"{text[:290]}... ({len(text)} characters)"


# Files


def as_read(document: Any) -> Any:
    """Return a document as it is read back from JSON."""
    return json.loads(json.dumps(document, allow_nan=False))


def read(path: Path) -> dict[str, Any]:
    """Return the contents of a recorded file; empty if there is no file."""
    if not path.exists():
        return {}
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content


def write(path: Path, document: dict[str, Any]) -> None:
    """Write a record; the same document gives the same bytes."""
    text = _pretty(document) + "\n"
    assert json.loads(text) == document
    assert len(text.encode()) <= LARGEST, path
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")


def _pretty(value: Any, indent: str = "") -> str:
    """Return JSON with a line for each item of an object, and one line for a list of plain
    values."""
    deeper = indent + " "
    if isinstance(value, dict) and value:
        items = [f"{json.dumps(key)}: {_pretty(each, deeper)}" for key, each in value.items()]
        return "{\n" + ",\n".join(deeper + item for item in items) + f"\n{indent}}}"
    if isinstance(value, list) and any(isinstance(each, dict | list | str) for each in value):
        items = [_pretty(each, deeper) for each in value]
        return "[\n" + ",\n".join(deeper + item for item in items) + f"\n{indent}]"
    return json.dumps(value, allow_nan=False)
