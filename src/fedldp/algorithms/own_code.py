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

import random  # noqa: TID251  # left as it was before a trial
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

import numpy as np

from fedldp.algorithms.composition import Algorithm
from fedldp.algorithms.people import PersonSteps
from fedldp.algorithms.problem import Problem
from fedldp.core.errors import ConfigError, first_line
from fedldp.core.randomness import Stream, numbered_generator, torch_seeded
from fedldp.core.registry import fault, is_address
from fedldp.data.examples import Examples
from fedldp.data.own_features import Answer, Rows, Trial, difference
from fedldp.protocol.keys import SimulationKeys, draws_of_seed
from fedldp.protocol.roles import Batch, Client, LocalUpdate
from fedldp.protocol.wire import Broadcast
from fedldp.training.person_gradients import ModelGradients

_ROWS = 4
"""The number of rows of a client in a trial."""

_STEP = 0.1
"""The size of the steps in a trial, which any model can take."""


def check_own_code(algorithm: Algorithm) -> None:
    """Refuse a user's own model, loss or system if a trial shows that it keeps something of rows.

    These and a mechanism are also refused if they fail on public rows, as they would in the first
    round. A user's own features have been tried before, when they were loaded.

    Raises:
        ConfigError: the code is refused; the message names it.
    """
    config, local = algorithm.config, algorithm.parts.local
    names = ("system", "mechanism", "model", "loss")
    given = {name: str(getattr(config, name, "")) for name in names}
    given = {name: value for name, value in given.items() if is_address(value)}
    if not given:
        return
    with _undisturbed():
        try:
            _check_mechanism(algorithm)
            if "system" in given:
                _check_groups(algorithm)
            if set(given) - {"mechanism"}:
                _check_input(algorithm)
                for way in (_WAYS[local.alone], *([_try_clients] if _is_own(local) else ())):
                    _check_alone(way(algorithm))
        except Exception as error:  # the user's own code may raise anything
            said = _classes(algorithm) + (fault(error) or first_line(error))
            named = " and ".join(f"{name} = {value}" for name, value in given.items())
            raise ConfigError(f"{named}: tried on public rows before the run: {said}") from error


def _check_alone(trial: Trial | None) -> None:
    """Refuse code that keeps something of rows, as its trial shows."""
    after = None if trial is None else difference(trial)
    if after is not None:
        raise ConfigError(
            f"what the same rows contribute differs after {after}, so something is kept from one "
            "call to the next, or random numbers come from another generator than torch's global "
            "one; keep nothing in attributes, caches or globals"
        )


def _check_mechanism(algorithm: Algorithm) -> None:
    """Refuse a user's own mechanism whose report of zeros cannot be made or read."""
    release = algorithm.release(0).at(1)
    mechanism, size = release.mechanism, release.coordinates
    if not _is_own(mechanism):
        return
    report = mechanism.encode(np.zeros(size), Stream(bytes(32), simulated=True))
    bits = mechanism.payload_bits(size)
    if not isinstance(report, bytes) or len(report) != -(-bits // 8):
        what = f"{len(report)} bytes" if isinstance(report, bytes) else type(report).__name__
        raise ConfigError(f"encode returns {what}, but payload_bits says {bits} bits; mend one")
    total = mechanism.aggregate(size)
    total.add(report)
    if np.shape(mean := total.mean()) != (size,) or not np.all(np.isfinite(mean)):
        raise ConfigError(f"its aggregate's mean is not {size} finite numbers")


def _check_groups(algorithm: Algorithm) -> None:
    """Refuse clients that release different events, though no setting says so."""
    for group in algorithm.config.encoder_groups():
        tried = [int(group[at]) for at in (0, len(group) // 2, -1)]
        if len({algorithm.encoder(client).event() for client in tried}) > 1:
            raise ConfigError(
                f"clients {tried[0]} and {tried[-1]} state different events, but their settings "
                "are equal; make what differs a setting of each client"
            )


def _check_input(algorithm: Algorithm) -> None:
    """Refuse a model that changes its input, which may be a test set that is used again."""
    import torch

    model = algorithm.untrained().eval()
    rows = numbered_generator(0, 0).random((2, *_shape(algorithm)), np.float32)
    rows = algorithm.prepared()(_examples([rows], algorithm.problem)).features
    given = torch.from_numpy(rows.copy())
    with suppress(Exception), torch.no_grad():  # other trials find a failure
        model(given)
    if given.numpy().tobytes() != rows.tobytes():
        raise ConfigError(
            "forward changes its input in place; work on a copy, such as x = 2 * x in place of "
            "x *= 2"
        )


@contextmanager
def _undisturbed() -> Iterator[None]:
    """Keep the global random generators, and make torch's sums the same in every call."""
    from fedldp.training.tensors import one_thread

    of_python, of_numpy = random.getstate(), np.random.get_state()  # noqa: TID251
    try:
        with torch_seeded(Stream(bytes(32), simulated=True)), one_thread():
            yield
    finally:
        random.setstate(of_python)
        np.random.set_state(of_numpy)  # noqa: TID251


def _classes(algorithm: Algorithm) -> str:
    """Return which classes of the model are the user's own, in words; "" if none are."""
    model = algorithm.untrained()
    own = {type(part).__name__ for part in model.modules() if _is_own(part)}
    return f"{', '.join(sorted(own))}: " if own else ""


def _is_own(part: object) -> bool:
    return not type(part).__module__.startswith(("torch.", "fedldp."))


def _shape(algorithm: Algorithm) -> tuple[int, ...]:
    """Return the shape of an example, or of what a system of fedldp makes of it by itself."""
    features, problem = algorithm.parts.features, algorithm.problem
    raw = _is_own(features) or features.mapping(problem) is not None
    return problem.input_shape if raw else algorithm.input_shape


# Trials of the ways in which systems use a model


def _try_clients(algorithm: Algorithm) -> Trial:
    """Return the trial of a user's own local update, whose units are clients."""
    import torch

    def make() -> Answer:
        server = algorithm.server()
        first = server.publish(server.initial(draws_of_seed(0)(0)))
        return _after(first, algorithm.local_update(torch.device("cpu")), algorithm.problem)

    return Trial((_ROWS, *algorithm.problem.input_shape), make)


def _try_sgd(algorithm: Algorithm) -> Trial:
    """Return the trial of one epoch of SGD, whose units are clients.

    All local updates of fedldp that compute a client's contribution use the model like this.
    """
    import torch

    from fedldp.algorithms.features import OnFeatures
    from fedldp.training.tensors import read_weights

    def make() -> Answer:
        sgd = algorithm.sgd(torch.device("cpu"))
        first = Broadcast(round=1, weights=read_weights(sgd.model))
        size = min(sgd.batch_size, _ROWS - 1)  # so that the last batch has one row
        short = replace(sgd, local_epochs=1, learning_rate=_STEP, batch_size=size)
        update = OnFeatures(update=short, once=algorithm.prepared())
        return _after(first, update, algorithm.problem)

    return Trial((_ROWS, *_shape(algorithm)), make)


def _after(first: Broadcast, update: LocalUpdate, problem: Problem) -> Answer:
    """Return the answers of clients that compute their updates one after another."""

    def answer(units: Sequence[Rows], factor: float) -> bytes:
        told = replace(first, weights=first.weights * np.float32(factor))
        for index in reversed(range(len(units))):
            rows = units[-1 - index]  # the last is client 0, however many came before it
            own = _examples([rows.copy()], problem)
            try:
                found = update(told, Batch.of_one(_client(index, own))).open()
            except Exception:
                if index == 0:
                    raise
        if own.features.tobytes() != rows.tobytes():
            raise ConfigError("the local update changes its client's rows; work on a copy")
        arrays = [found.rows, *(found.aux[name] for name in sorted(found.aux))]
        return b"".join(np.asarray(each).tobytes() for each in arrays)

    return answer


def _try_rows(algorithm: Algorithm) -> Trial:
    """Return the trial of gradients of single rows; see ``single_gradients``.

    Torch computes them for several rows at once, and rounds differently for another number of rows.
    So there are always two, of which the first may be zeros.
    """
    import torch

    from fedldp.models import layout_of_module
    from fedldp.training.batched_sgd import single_gradients
    from fedldp.training.tensors import as_tensors, load_weights, read_weights

    def make() -> Answer:
        sgd, prepared = algorithm.sgd(torch.device("cpu")), algorithm.prepared()
        model, weights = sgd.model.train(), read_weights(sgd.model)

        def last_of(two: Sequence[Rows]) -> bytes:
            inputs, labels = as_tensors(prepared(_examples(two, algorithm.problem)))
            with torch_seeded(Stream(bytes(32), simulated=True)):
                found = single_gradients(model, inputs.clone(), labels, sgd.class_weights)
            return b"".join(torch.clone(each[-1]).numpy().tobytes() for each in found.values())

        def answer(units: Sequence[Rows], factor: float) -> bytes:
            load_weights(model, layout_of_module(model), weights * np.float32(factor))
            *before, own = units
            zeros = np.zeros_like(own)
            for other in before:
                with suppress(ConfigError):  # the model may refuse its numbers
                    last_of([zeros, other])  # what torch keeps may be for the second place alone
                with suppress(ConfigError):
                    return last_of([other, own])
            return last_of([zeros, own])

        return answer

    return Trial((1, *_shape(algorithm)), make)


def _try_people(algorithm: Algorithm) -> Trial | None:
    """Return the trial of people's vectors, which are computed for one person after another.

    Returns:
        None in closed form, which runs no code of a model.
    """
    from fedldp.training.tensors import read_weights

    local = algorithm.parts.local
    assert isinstance(local, PersonSteps)
    if not isinstance(local.summed(algorithm), ModelGradients):
        return None

    def make() -> Answer:
        summed, prepared = local.summed(algorithm), algorithm.prepared()
        assert isinstance(summed, ModelGradients)
        weights = read_weights(summed.model)

        def answer(units: Sequence[Rows], factor: float) -> bytes:
            examples = prepared(_examples(units, algorithm.problem))
            *_, last = summed.vectors(weights * np.float32(factor), examples)
            if isinstance(last, Exception):
                raise last
            return last.tobytes()

        return answer

    rows = 1 if algorithm.problem.people is None else 2
    return Trial((rows, *_shape(algorithm)), make)


_WAYS: Mapping[str, Callable[[Algorithm], Trial | None]] = {
    "client": _try_sgd,
    "person": _try_people,
    "row": _try_rows,
}
"""For what a local update computes alone, the trial of its model; see ``Local.alone``."""


def _examples(units: Sequence[Rows], problem: Problem) -> Examples:
    """Return the rows of several units, each of which is a person if the data name people."""
    labels = np.tile(np.arange(len(units[0])) % problem.num_classes, len(units))
    people = np.repeat(np.arange(len(units)), len(units[0]))
    return Examples(np.concatenate(units), labels, None if problem.people is None else people)


def _client(index: int, examples: Examples) -> Client:
    from fedldp.protocol.client_store import MemoryStore

    keys = SimulationKeys(0, index)
    return Client(
        index=index,
        examples=examples,
        fresh=partial(keys.fresh, 1, 0),
        kept=keys.kept,
        store=MemoryStore(),
    )
