"""Trials of a user's own code on public rows, before a statement or an agreement relies on it.

What one client or person contributes must be a function of the broadcast and of its own rows alone,
to the bit. A user's model, loss, features or local update may break this, for instance by keeping
the largest input so far. Nobody can prove that code keeps nothing, so statements list it as an
assumption. But code that keeps something usually shows it: here the same public rows are used
alone, after other rows, and after rows a million times as large, in the way in which the system
will use private rows. If their contribution differs in a single bit, the code is refused.

A trial uses its own copy of the model, and leaves the global random generators as they were.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import Stream, numbered_generator, torch_seeded
from fedldp.core.registry import is_address
from fedldp.data.examples import Examples
from fedldp.models import Layer, layers_of
from fedldp.protocol.client_keys import SimulationKeys
from fedldp.protocol.client_store import MemoryStore
from fedldp.protocol.roles import Batch, Client, LocalUpdate
from fedldp.protocol.server_keys import draws_of_seed
from fedldp.protocol.wire import Broadcast

if TYPE_CHECKING:
    from torch import nn

    from fedldp.algorithms.composition import Algorithm

Rows = NDArray[np.float32]

Answer = Callable[[Sequence[Rows], float], bytes]
"""Gives the contribution of the last of several units, whose rows are used one after another.

A unit is what a system treats alone: a client, a person, or a row. The second argument is a factor
on the broadcast weights.
"""

_ROWS = 4
"""The number of rows of a client in a trial."""

_STEP = 0.1
"""The size of the steps in a trial, which any model can take."""

_NUMBERS = itertools.count()
"""Every trial has its own rows, the larger ones larger than before: what code keeps in a global
would otherwise be the same before and after."""


@dataclass(frozen=True)
class Trial:
    """How to try the code that computes a unit's contribution.

    Attributes:
        shape: the shape of one unit's rows.
        answer: see ``Answer``; it raises what the code raises on the last unit's rows.
    """

    shape: tuple[int, ...]
    answer: Answer


def difference(answer: Callable[[Sequence[Rows]], bytes], shape: tuple[int, ...]) -> str | None:
    """Return after what the contribution of the same public rows differs; None if it never does.

    Args:
        answer: gives the contribution of the last of several units.
        shape: the shape of one unit's rows.
    """
    number = next(_NUMBERS)
    own, other = numbered_generator(0, number).random((2, *shape), np.float32)
    large = other * np.float32(1e6 * (1 + number) / other.max())
    reordered = own.reshape(-1)[::-1].reshape(shape).copy()
    alone = answer([own])
    for after, units in {
        "the same rows": [own],
        "other rows": [other, own],
        "the same numbers in another order": [reordered, own],
        "rows a million times as large": [large, own],
    }.items():
        if answer(units) != alone:
            return after
    return None


def check_own_code(algorithm: Algorithm) -> None:
    """Refuse a user's own model, loss or system if a trial shows that it keeps something of rows.

    It is also refused if it fails on the public rows, as it would fail in the first round. A user's
    own features have been tried before, when they were loaded.

    Raises:
        ConfigError: the code is refused; the message names it.
    """
    from fedldp.algorithms.composition import Local

    named = _own(algorithm)
    if not named:
        return
    local = algorithm.parts.local
    ways = [local.trial]
    if not type(local).__module__.startswith("fedldp.") and type(local).trial is not Local.trial:
        ways.append(partial(Local.trial, local))  # the user's own update of a built-in kind
    with _undisturbed():
        try:
            _check_input(algorithm)
            for way in ways:
                after = _difference(lambda way=way: way(algorithm))  # type: ignore[misc]
                if after is not None:
                    raise ConfigError(
                        f"what the same public rows contribute differs after {after}:"
                        f"{_classes(algorithm)} something is kept from one call to the next, or "
                        "random numbers are drawn from another generator than torch's global one; "
                        "keep nothing that depends on rows in attributes, caches or globals"
                    )
        except Exception as error:  # the user's own code may raise anything
            said = first_line(error).removeprefix("model: ")
            raise ConfigError(
                f"{' and '.join(named)}: tried on public rows before the run: {_layer(error)}{said}"
            ) from error


def _difference(make: Callable[[], Trial | None]) -> str | None:
    used, new = make(), make()
    if used is None or new is None:
        return None
    found = difference(lambda units: used.answer(units, 1.0), used.shape)
    if found is None:
        own = numbered_generator(0, next(_NUMBERS)).random(used.shape, np.float32)
        used.answer([own], 1.0)
        if used.answer([own], 0.5) != new.answer([own], 0.5):
            return "another broadcast"
    return found


def _own(algorithm: Algorithm) -> list[str]:
    """Return the user's own code that a client runs on rows, as settings with their values."""
    config, classes = algorithm.config, algorithm.problem.num_classes
    given = {name: str(getattr(config, name, "")) for name in ("system", "model", "loss")}
    if is_address(given["model"]) and not is_address(given["system"]):
        layers = layers_of(config.model, algorithm.input_shape, classes)
        home = Layer.__module__
        if layers is not None and all(type(layer).__module__ == home for layer in layers):
            del given["model"]  # it is computed by fedldp's own code alone
    return [f"{name} = {value}" for name, value in given.items() if is_address(value)]


def _check_input(algorithm: Algorithm) -> None:
    """Refuse a model that changes its input, which may be a test set that is used again."""
    import torch

    model = algorithm.untrained().eval()
    rows = numbered_generator(0, next(_NUMBERS)).random((2, *algorithm.input_shape), np.float32)
    given = torch.from_numpy(rows.copy())
    with suppress(Exception), torch.no_grad():  # other trials find a failure
        model(given)
    if given.numpy().tobytes() != rows.tobytes():
        raise ConfigError(
            f"{_classes(algorithm)} forward changes its input in place; work on a copy, such as "
            "x = 2 * x in place of x *= 2"
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the global random generators, and make torch's sums the same in every call."""
    from fedldp.training.tensors import one_thread

    of_python, of_numpy = random.getstate(), np.random.get_state()
    try:
        with torch_seeded(Stream(bytes(32), simulated=True)), one_thread():
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)


def _classes(algorithm: Algorithm) -> str:
    """Return which classes of the model are not torch's own, in words."""
    model = algorithm.untrained()
    own = {type(part).__name__ for part in model.modules() if _is_own(part)}
    return f" in {', '.join(sorted(own))}," if own else ""


def _is_own(part: nn.Module) -> bool:
    return not type(part).__module__.startswith(("torch.", "fedldp."))


def _layer(error: BaseException | None) -> str:
    """Return which layer of a model raised an error, in words; "" if none did."""
    from torch import nn

    found: list[nn.Module] = []
    while error is not None:
        trace = error.__traceback__
        while trace is not None:
            part = trace.tb_frame.f_locals.get("self")
            if isinstance(part, nn.Module) and part not in found:
                found.append(part)
            trace = trace.tb_next
        error = error.__cause__
    if not found:
        return ""
    names = {part: name for name, part in found[0].named_modules()}
    inner = found[-1]
    return f"layer {names.get(inner) or 'of the model'} ({type(inner).__name__}): "


# Trials for the ways in which systems use a model


def try_clients(algorithm: Algorithm) -> Trial:
    """Return the trial of a local update, whose units are clients."""
    import torch

    changes: dict[str, Any] = {"rounds": 1, "local_epochs": 1, "learning_rate": _STEP}
    changes["batch_size"] = min(algorithm.config.batch_size, _ROWS - 1)  # the last batch has 1 row
    # Not checked again: nothing but the local update and the first broadcast depend on it.
    short = replace(algorithm, config=algorithm.config.model_copy(update=changes))
    server = short.server()
    first = server.publish(server.initial(draws_of_seed(0)(0)))
    shape = algorithm.problem.input_shape
    return try_update(algorithm, short.local_update(torch.device("cpu")), first, shape)


def try_sgd(algorithm: Algorithm) -> Trial:
    """Return the trial of SGD, for clients that transform their rows in a way of their own."""
    import torch

    from fedldp.training.tensors import read_weights

    sgd = replace(algorithm.sgd(torch.device("cpu")), local_epochs=1, learning_rate=_STEP)
    first = Broadcast(round=1, weights=read_weights(sgd.model))
    return try_update(algorithm, sgd, first, algorithm.input_shape)


def try_update(
    algorithm: Algorithm, update: LocalUpdate, first: Broadcast, shape: tuple[int, ...]
) -> Trial:
    """Return the trial of a local update on rows of a shape, after the broadcast ``first``."""

    def answer(units: Sequence[Rows], factor: float) -> bytes:
        told = replace(first, weights=first.weights * np.float32(factor))
        for index in reversed(range(len(units))):
            rows = units[-1 - index]  # the last is client 0, however many came before it
            own = _examples(algorithm, [rows.copy()])
            try:
                found = update(told, Batch.of_one(_client(index, own))).open()
            except Exception:
                if index == 0:
                    raise
        if own.features.tobytes() != rows.tobytes():
            raise ConfigError("the local update changes its client's rows; work on a copy")
        arrays = [found.rows, *(found.aux[name] for name in sorted(found.aux))]
        return b"".join(np.asarray(each).tobytes() for each in arrays)

    return Trial((_ROWS, *shape), answer)


def try_single_rows(algorithm: Algorithm, shape: tuple[int, ...]) -> Trial:
    """Return the trial of gradients of single rows of a shape; see ``single_gradients``.

    Torch computes them for several rows at once, and rounds differently for another number of rows.
    So a row that comes alone gets a row of zeros before it.
    """
    import torch

    from fedldp.models import layout_of_module
    from fedldp.training.single_gradients import single_gradients
    from fedldp.training.tensors import as_tensors, load_weights, read_weights

    sgd, prepared = algorithm.sgd(torch.device("cpu")), algorithm.prepared()
    model, weights = sgd.model, read_weights(sgd.model)

    def answer(units: Sequence[Rows], factor: float) -> bytes:
        model.train()
        load_weights(model, layout_of_module(model), weights * np.float32(factor))
        both = [np.zeros_like(units[-1]), *units][-2:]
        inputs, labels = as_tensors(prepared(_examples(algorithm, both)))
        with torch_seeded(Stream(bytes(32), simulated=True)):
            found = single_gradients(model, inputs.clone(), labels, sgd.class_weights)
        return b"".join(torch.clone(each[-1]).numpy().tobytes() for each in found.values())

    return Trial((1, *shape), answer)


def try_people(
    algorithm: Algorithm, vectors: Callable[[float, Examples], Sequence[NDArray[Any] | Exception]]
) -> Trial:
    """Return the trial of people's vectors, which are computed for one person after another.

    Args:
        algorithm: the algorithm.
        vectors: given a factor on the weights and the rows of people, returns each person's vector,
            or the error with which the model failed.
    """
    rows = 1 if algorithm.problem.people is None else 2

    def answer(units: Sequence[Rows], factor: float) -> bytes:
        examples = algorithm.prepared()(_examples(algorithm, units))
        last = vectors(factor, examples)[-1]
        if isinstance(last, Exception):
            raise last
        return last.tobytes()

    return Trial((rows, *algorithm.problem.input_shape), answer)


def _examples(algorithm: Algorithm, units: Sequence[Rows]) -> Examples:
    """Return the rows of several units, each of which is a person if the data name people."""
    features = np.concatenate(units)
    labels = np.tile(np.arange(len(units[0])) % algorithm.problem.num_classes, len(units))
    people = None
    if algorithm.problem.people is not None:
        people = np.repeat(np.arange(len(units)), len(units[0]))
    return Examples(features, labels, people)


def _client(index: int, examples: Examples) -> Client:
    keys = SimulationKeys(0, index)
    return Client(
        index=index,
        examples=examples,
        fresh=partial(keys.fresh, 1, 0),
        kept=keys.kept,
        store=MemoryStore(),
    )
