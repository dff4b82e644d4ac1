"""Sums of people's clipped gradients in exact integers, to which a site adds noise.

Every person gives one vector of integers: the mean gradient of its rows, scaled down to the norm
``clip``, on a public grid where ``NORM`` steps equal ``clip``. A site adds these vectors up. Two
properties must hold exactly:

- A person's vector is, to the bit, a function of the broadcast and of that person's rows alone.
Otherwise the rounding of other people's vectors would change when a person comes or goes, by an
amount that the noise does not cover. Floats depend on the batch in which they are computed. So in
dense layers, everything that passes through a matrix product of several people is on a grid that is
coarse enough for every product and sum to be exact in float64, in any order. Everything else is
computed for each number or person alone. Other models are differentiated for one person after
another.
- The norm of a person's vector is at most ``NORM``, however it was rounded. This is checked: a
vector that is too long is rounded towards zero, or replaced by zeros.

So replacing one person changes the sum by at most 2 ``NORM``. A person whose gradient is NaN or
infinite contributes zeros. The loss is the cross-entropy; or, for labels that are numbers, half the
squared error in units of half their range, which a model with one output predicts.

Source: Abadi et al., "Deep Learning with Differential Privacy", CCS 2016, for clipped gradients;
the grid and its bounds are ours.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import Stream, torch_seeded
from fedldp.data.examples import Examples
from fedldp.data.label_range import STEPS, centred
from fedldp.models import Dense, Flatten, Layer, Relu
from fedldp.protocol.roles import Batch, Client, LocalUpdate, Update
from fedldp.protocol.wire import Broadcast, Layout, Sensitive
from fedldp.training.column_sums import ColumnMap, column_sums
from fedldp.training.exact_sums import NORM, Floats, cut, exp, whose_rows
from fedldp.training.questions import VOTES, Question, Rows

if TYPE_CHECKING:
    from torch import Tensor, nn

SUMS = "sums of people"
"""The key under which an update carries these sums in addition to its weights."""

SMALLEST_CLIP, LARGEST_CLIP = 1e-4, 1e4

_MARGIN = 1 - 2.0**-8
"""The share of a bound to aim for, so that rounding rarely makes a vector too long."""

_HOLDS = float(NORM) ** 2 * (1 - 2.0**-20)
"""If a squared norm in float64 is at most this, its exact value is at most ``NORM``^2.

A sum of d squares, none of them negative, has a relative error below d 2^-52.
"""

_INPUT_BITS, _WEIGHT_BITS, _ERROR_BITS = 12, 22, 20
"""A layer's inputs, its weights, and the derivatives at its output are multiples of 2^-bits."""

_LONGEST_INPUT, _LONGEST_WEIGHTS = 2.0**8, 2.0**10
"""The largest norms of a layer's input, and of all of its weights as one vector.

By Cauchy-Schwarz an output, and every partial sum of it, is below 2^18 and a multiple of 2^-34, and
so exact in the 53 bits of float64.
"""

_LONGEST_BACK = 2.0**11
"""The largest derivative with respect to an input: a multiple of 2^-42, so it is exact as well.

In the last layer no derivative is larger, because a derivative with respect to a logit is at most
1, and the derivatives of a row have a norm of at most sqrt(2). In earlier layers, derivatives with
respect to a layer's outputs are scaled down, by the norm of the layer's weights, to at most this.
"""

_LARGEST_ERROR = 2.0
"""The largest error of a number between -1 and 1; a model's output beyond these counts as less.

With one output, a derivative with respect to an input of its layer is then at most 2^11 as well.
"""

_EXACT = 2.0**50
"""The largest sum of the norms of one person's rows, as whole numbers; products are then exact."""

_TOGETHER = 2.0**40
"""The same bound where up to ``_BLOCK`` rows are added at a time: the sum is at most 2^51."""

INTERCEPT_CLIP = 0.43
"""Above sqrt(2) 0.3, the longest gradient of the weights of the constant 0.3, with ``_MARGIN``.

For labels that are numbers, errors above 1.4 times half the range are clipped.
"""

_MOST_INPUTS = 1 << 13
"""Squares of up to this many input numbers, of any size that is accepted, add up exactly."""

_BLOCK = 1 << 12
"""The most rows computed at a time, unless one person has more, to bound the memory."""

_ENTRIES = 1 << 22
"""The most entries of single people's gradients held at a time, to bound the memory."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Summed(ABC):
    """Sums the vectors of people at given weights.

    Attributes:
        layout: the layout of the model's parameters.
        clip: the largest norm of a person's gradient; from 1e-4 to 1e4.
        class_weights: public factors on the loss of a row, one for each label, at most 1; empty for
            none.
    """

    layout: Layout
    clip: float
    class_weights: tuple[float, ...] = ()

    @abstractmethod
    def __call__(self, weights: NDArray[np.float32], examples: Examples) -> Floats:
        """Return the sum over all people, in whole numbers, shape (d,).

        The sum is exact, and clipped to 2^52 in each coordinate, which moves no two sums further
        apart. Fewer than 2^22 people never reach that limit.
        """

    @abstractmethod
    def logits(self, weights: NDArray[np.float32], examples: Examples) -> Floats:
        """Return the model's outputs, shape (n, classes), each row computed alone.

        A row is NaN if the model has no finite output for it.
        """


def _as_they_are(examples: Examples) -> Examples:
    return examples


@dataclass(frozen=True, kw_only=True)
class PersonGradients(LocalUpdate):
    """The local update: the broadcast weights, and in addition the sum over a client's people.

    In some rounds all people answer a ``Question`` instead of giving gradients.

    Some people may be held out of training. In the rounds of gradients, these voters answer
    ``VOTES`` instead, in separate coordinates. Nobody gives both, and two vectors in separate
    coordinates, of norm ``NORM`` and of norm sqrt(2) ``NORM``, are less than 2 ``NORM`` apart.

    Attributes:
        summed: sums the vectors of people.
        held_out: the share of people who vote, at least 0. The voters are drawn once in a run, by
            their positions, so that the choice does not depend on anybody's rows.
        sampled: the probability with which a person is sampled, independently for
            each person and each round. It is below 1 only in simulations, because a step's duration
            reveals how many people it sampled.
        num_classes: the number of classes.
        questions: what is asked in which rounds.
        size: the number of coordinates of a sum, at least that of the weights, and of the votes
            behind them; None for these alone.
        measured: the rounds that measure columns; later broadcasts have a ``ColumnMap``.
        intercepts: the rounds that train the intercept alone.
        intercept: sums the gradients in these rounds.
    """

    summed: Summed
    held_out: float = 0.0
    sampled: float = 1.0
    num_classes: int = 0
    questions: Sequence[tuple[range, Question]] = ()
    size: int | None = None
    measured: range = range(0)
    intercepts: range = range(0)
    intercept: Summed | None = None

    def __call__(self, broadcast: Broadcast, batch: Batch, group: int = 1) -> Sensitive[Update]:
        """Return the weights unchanged, and sums of shape (n, ``size``)."""
        weights, asked = broadcast.weights, self._asked(broadcast)
        size = self.size or weights.size + (VOTES.cells if self.held_out else 0)
        sums = np.zeros((len(batch), size))
        for place, client in enumerate(batch):
            found = asked(client)
            sums[place, : found.size] = found
        rows = np.repeat(weights[None], len(batch), axis=0)
        return Sensitive(Update(rows=rows, aux={SUMS: sums}))

    def _asked(self, broadcast: Broadcast) -> Callable[[Client], Floats]:
        """Return what a round sums over a client's people, before any example is looked at.

        The kind of sum follows from the round's number and from what was agreed.

        Raises:
            RunError: the broadcast lacks what it must tell.
        """
        round, weights, summed = broadcast.round, broadcast.weights, self.summed
        if round in self.measured:
            return lambda client: column_sums(client.examples, self.num_classes)
        columns: Callable[[Examples], Examples] = _as_they_are
        if self.measured:
            columns = ColumnMap.told(broadcast, weights.size // self.num_classes - 1)
        for rounds, question in self.questions:
            if round in rounds:
                answers = question.told(broadcast)
                return lambda client: answers(self._rows(weights, client.examples, columns))
        if round in self.intercepts:
            assert self.intercept is not None
            summed = self.intercept
        votes = VOTES.told(broadcast)

        def found(client: Client) -> Floats:
            examples = columns(client.examples)
            if not self.held_out:
                return summed(weights, examples.taken(self._taken(client)))
            people = whose_rows(examples)
            drawn = client.kept("held-out people").generator().random(people.max(initial=-1) + 1)
            votes_here = (drawn < self.held_out)[people]
            trained = summed(weights, examples.taken(~votes_here))
            return np.append(trained, votes(self._rows(weights, examples.taken(votes_here))))

        return found

    def _taken(self, client: Client) -> slice | NDArray[np.bool_]:
        """Return the rows that are used: all rows of independently sampled people.

        Raises:
            PrivacyError: the rate is below 1, and this is not a simulation.
        """
        if self.sampled == 1:
            return slice(None)
        stream, people = client.fresh("people"), whose_rows(client.examples)
        if not stream.simulated:
            raise PrivacyError(
                f"sample_rate = {self.sampled:g}: the time of a step reveals how many people it "
                "sampled, so this is for simulations only; set sample_rate = 1"
            )
        drawn = stream.generator().random(people.max(initial=-1) + 1)
        sampled: NDArray[np.bool_] = drawn < self.sampled
        return sampled[people]

    def _rows(
        self,
        weights: NDArray[np.float32],
        examples: Examples,
        columns: Callable[[Examples], Examples] = _as_they_are,
    ) -> Rows:
        """Return rows with the model's outputs for them, which it computes from mapped columns."""
        return Rows(
            examples=examples,
            logits=cache(lambda: self.summed.logits(weights, columns(examples))),
        )


class _Layer(NamedTuple):
    """A dense layer: whether it has a bias, and whether a ReLU follows."""

    bias: bool
    relu: bool = False


@dataclass(frozen=True, kw_only=True)
class DenseGradients(Summed):
    """Sums in closed form, for a model of dense layers with ReLU between them.

    With a layer's input a and the derivative e of the loss with respect to the layer's output, the
    gradient of a row is e a', whose norm is |e| |a|, and the sum over rows is a matrix product. A
    layer's input with a norm above 256 is scaled down to 256, and weights with a norm above 1,024
    to 1,024.

    Attributes:
        layers: the dense layers, in order.
        intercept: whether all weights but those of the last input, the constant, get the gradient
            0; for a model of one layer.
    """

    layers: tuple[_Layer, ...]
    intercept: bool = False

    def of_intercept(self) -> DenseGradients:
        """Return the same for the weights of the constant alone, where no gradient is clipped."""
        return replace(self, intercept=True, clip=INTERCEPT_CLIP)

    def __call__(self, weights: NDArray[np.float32], examples: Examples) -> Floats:
        """Return the sum over all people; see ``Summed``."""
        parameters = self._parameters(weights)
        total = np.zeros(self.layout.size, np.int64)
        for count, rows in rows_of_people(examples):
            most = _BLOCK if count == 1 else max(1, min(_ENTRIES // total.size, _BLOCK // count))
            for start in range(0, len(rows), most):
                own = rows[start : start + most].ravel()
                passed = self._passed(parameters, examples.features[own], examples.labels[own])
                block = self._one_row(*passed) if count == 1 else self._rows(*passed, count)
                total += block.astype(np.int64)
        return cut(total)

    def logits(self, weights: NDArray[np.float32], examples: Examples) -> Floats:
        """Return the model's outputs; see ``Summed``."""
        parameters = self._parameters(weights)
        found = np.empty((len(examples), len(parameters[-1])))
        for start in range(0, len(examples), _BLOCK):
            part = slice(start, start + _BLOCK)
            _, found[part], lost = self._forward(parameters, examples.features[part])
            found[part][lost] = np.nan
        return found

    def _parameters(self, weights: NDArray[np.float32]) -> list[Floats]:
        """Return the matrix of each layer, with its bias as the last column, on the grid."""
        found, start, shapes = [], 0, iter(self.layout.shapes)
        for layer in self.layers:
            units, inputs = next(shapes)
            stop = start + units * inputs
            matrix = weights[start:stop].reshape(units, inputs).astype(np.float64)
            if layer.bias:
                next(shapes)
                bias = weights[stop : stop + units, None].astype(np.float64)
                matrix, stop = np.hstack([matrix, bias]), stop + units
            norm = _norm(matrix)
            if norm > _MARGIN * _LONGEST_WEIGHTS:
                matrix *= _MARGIN * _LONGEST_WEIGHTS / norm
            found.append(_on_grid(matrix, _WEIGHT_BITS))
            start = stop
        return found

    def _forward(
        self, parameters: list[Floats], features: NDArray[np.float32]
    ) -> tuple[list[Floats], Floats, NDArray[np.bool_]]:
        """Return rows' inputs to each layer, their logits, and a mask of non-finite rows."""
        values = features.reshape(len(features), -1).astype(np.float64)
        lost = np.asarray(~np.isfinite(values).all(axis=1))
        values[lost] = 0
        inputs: list[Floats] = []
        for layer, matrix in zip(self.layers, parameters, strict=True):
            inputs.append(_bounded(values, layer.bias))
            values = inputs[-1] @ matrix.T
            if layer.relu:
                values = np.maximum(values, 0)
        return inputs, values, lost

    def _passed(
        self, parameters: list[Floats], features: NDArray[np.float32], labels: NDArray[np.int64]
    ) -> tuple[list[Floats], list[Floats]]:
        """Return, for each layer, rows' inputs, (n, p), and gradients at its outputs, (n, k)."""
        inputs, logits, lost = self._forward(parameters, features)
        if logits.shape[1] == 1:
            error = (logits - centred(labels)[:, None]).clip(-_LARGEST_ERROR, _LARGEST_ERROR)
        else:
            error = _softmax(logits)
            error[np.arange(len(labels)), labels] -= 1
        if self.class_weights:
            error *= np.array(self.class_weights)[labels, None]
        error[lost] = 0
        errors = [_on_grid(error, _ERROR_BITS)]
        for at in range(len(self.layers) - 1, 0, -1):
            width = parameters[at].shape[1] - self.layers[at].bias
            back = errors[0] @ parameters[at][:, :width]
            if self.layers[at - 1].relu:
                back[inputs[at][:, :width] <= 0] = 0
            if at > 1:
                most = _MARGIN * _LONGEST_BACK / max(1.0, _norm(parameters[at - 1]))
                back *= np.minimum(1, most / np.maximum(np.sqrt(_squares(back)), 1e-200))[:, None]
            errors.insert(0, _on_grid(back, _ERROR_BITS))
        if self.intercept:
            inputs[0][:, :-1] = 0
        return inputs, errors

    def _one_row(self, inputs: list[Floats], errors: list[Floats]) -> Floats:
        """Return the sum over people who have one row each."""
        lengths = [np.einsum("ij,ij->i", each, each) for each in inputs]  # exact sums

        def norms(errors: list[Floats]) -> Floats:
            found = np.zeros(len(lengths[0]))
            for error, length in zip(errors, lengths, strict=True):
                found += _squares(error) * length
            return found

        factors = self._factors(norms(errors))
        # An input of 1 counts as 2^12 grid steps, so scale the errors by the rest of the factor
        # that turns gradients into steps of ``clip``.
        errors = _rounded(
            [each * (factors * 2.0**-_INPUT_BITS)[:, None] for each in errors],
            lambda found: norms(found) * 4.0**_INPUT_BITS,
        )
        return self._joined(
            [e.T @ (x * 2.0**_INPUT_BITS) for e, x in zip(errors, inputs, strict=True)]
        )

    def _rows(self, inputs: list[Floats], errors: list[Floats], count: int) -> Floats:
        """Return the sum over people who have ``count`` rows each."""
        given, error = (
            [each.reshape(-1, count, each.shape[1]) for each in of] for of in (inputs, errors)
        )

        def norms(errors: list[Floats]) -> Floats:
            # One product for each person, with the same shape for all.
            found = np.zeros(len(errors[0]))
            for e, x in zip(errors, given, strict=True):
                vectors = (e.swapaxes(1, 2) @ x).reshape(len(e), -1)
                found += np.square(vectors).sum(axis=1)
            return found

        alone = np.zeros(len(inputs[0]))
        for e, x in zip(errors, inputs, strict=True):
            alone += _squares(e) * np.einsum("ij,ij->i", x, x)
        together = np.zeros(len(error[0]))
        for column in np.sqrt(alone).reshape(-1, count).T:
            together += column
        together = np.maximum(together, 2.0**-64)  # smaller lengths count as 2^-64
        # Round to whole numbers before the norm of the sum over rows is computed, because the last
        # bits of a product of floats would depend on the order in which a library adds.
        fine = (_EXACT * 2.0**-_INPUT_BITS / together)[:, None, None]
        whole = norms([np.rint(each * fine) for each in error]) * 4.0**_INPUT_BITS
        factors = self._factors(whole * np.square(together / (_EXACT * count)))
        # The rows may cancel each other, so limit the factors to keep all partial sums exact.
        factors = np.minimum(factors, _TOGETHER * count / together)
        errors = _rounded(
            [each * (factors * (2.0**-_INPUT_BITS / count))[:, None, None] for each in error],
            lambda found: norms(found) * 4.0**_INPUT_BITS,
        )
        return self._joined(
            [
                np.tensordot(e, x * 2.0**_INPUT_BITS, ((0, 1), (0, 1)))
                for e, x in zip(errors, given, strict=True)
            ]
        )

    def _factors(self, squared_norms: Floats) -> Floats:
        """Return factors that turn gradients into grid steps, and clip the longer ones."""
        longer = np.sqrt(squared_norms) / (_MARGIN * self.clip)
        return (NORM / self.clip) / np.maximum(longer, 1)

    def _joined(self, matrices: list[Floats]) -> Floats:
        """Return the gradients of all layers' matrices as one vector, shape (d,)."""
        found = []
        for layer, matrix in zip(self.layers, matrices, strict=True):
            width = matrix.shape[1] - layer.bias
            found += [matrix[:, :width].ravel(), matrix[:, width:].ravel()]
        return np.concatenate(found)


def dense_layers(layers: Sequence[Layer]) -> tuple[_Layer, ...] | None:
    """Return the dense layers of a model; None if it has layers that ``DenseGradients`` lacks."""
    found: list[_Layer] = []
    for layer in layers:
        if type(layer) is Dense:
            found.append(_Layer(bias=layer.bias))
        elif type(layer) is Relu and found and not found[-1].relu:
            found[-1] = _Layer(bias=found[-1].bias, relu=True)
        elif type(layer) is not Flatten or found:
            return None
    return tuple(found) if found and not found[-1].relu else None


@dataclass(frozen=True, kw_only=True, eq=False)
class ModelGradients(Summed):
    """Sums for any torch model, which sees one person's rows at a time.

    Torch's layers that draw random numbers, such as dropout, are switched off. Other random draws
    of a model are the same for every person. If the model fails on a person's rows, that person
    contributes zeros.

    Attributes:
        model: the model at whose parameters gradients are taken, on the CPU.
        num_classes: the number of the model's outputs.
    """

    model: nn.Module
    num_classes: int

    def __call__(self, weights: NDArray[np.float32], examples: Examples) -> Floats:
        """Return the sum over all people; see ``Summed``."""
        total = np.zeros(self.layout.size, np.int64)
        for found in self.vectors(weights, examples):
            if not isinstance(found, Exception):
                total += found.astype(np.int64)
        return cut(total)

    def vectors(
        self, weights: NDArray[np.float32], examples: Examples
    ) -> Iterator[Floats | Exception]:
        """Yield each person's vector in grid steps, or the error that the model raised on its rows.

        An error must not affect anybody else, so it is not raised.
        """
        import torch  # a statement needs no torch
        from torch.nn import functional

        factors = torch.tensor(self.class_weights)

        def gradient(inputs: Tensor, answers: Tensor) -> Floats:
            outputs = self.model(inputs)
            if outputs.shape[1] == 1:
                losses = (outputs[:, 0] - answers * (2 / STEPS) + 1).square() / 2
            else:
                losses = functional.cross_entropy(outputs, answers, reduction="none")
            if len(factors):
                losses = losses * factors[answers]
            parts = torch.autograd.grad(
                losses.mean(),
                list(self.model.parameters()),
                allow_unused=True,
                materialize_grads=True,
            )
            return torch.cat([each.flatten() for each in parts]).numpy().astype(np.float64)

        people = (rows for _, alike in rows_of_people(examples) for rows in alike)
        for found in self._each(weights, examples, people, gradient):
            yield found if isinstance(found, Exception) else on_grid_of_clip(found, self.clip)

    def logits(self, weights: NDArray[np.float32], examples: Examples) -> Floats:
        """Return the model's outputs; see ``Summed``. A row on which the model fails is NaN."""
        import torch

        def outputs(one: Tensor, _: Tensor) -> Floats:
            # A wrong number of outputs must fail here, where it counts for this row alone.
            own: Floats = self.model(one)[0].double().numpy().reshape(self.num_classes)
            return own

        found = np.full((len(examples), self.num_classes), np.nan)
        rows = np.arange(len(examples))[:, None]
        with torch.no_grad():
            each = self._each(weights, examples, rows, outputs)
            for row, told in zip(found, each, strict=True):
                if not isinstance(told, Exception) and np.isfinite(told).all():
                    row[:] = told
        return found

    def _each(
        self,
        weights: NDArray[np.float32],
        examples: Examples,
        parts: Iterable[NDArray[np.int64]],
        of: Callable[[Tensor, Tensor], Floats],
    ) -> Iterator[Floats | Exception]:
        """Yield what a function gives for some parts of the rows, or the error that it raises."""
        import torch

        from fedldp.training.draws import draws_by_dropout_alone
        from fedldp.training.tensors import load_weights

        self.model.eval()
        load_weights(self.model, self.layout, weights)
        known = draws_by_dropout_alone(self.model)  # and in tests, nothing is dropped
        for rows in parts:
            # Copy the rows, because torch aligns its own memory, and the alignment affects the last
            # bits of a library's results.
            inputs = torch.from_numpy(examples.features[rows]).clone()
            answers = torch.from_numpy(examples.labels[rows]).clone()
            try:
                with nullcontext() if known else torch_seeded(_same_draws()):
                    found: Floats | Exception = of(inputs, answers)
            except Exception as error:  # a user's model may raise any error
                found = error
            yield found


def _same_draws() -> Stream:
    """Return the source of a model's random draws, restarted for every person.

    Without the restart, a person's draws would depend on the previous person's draws.
    """
    return Stream(bytes(32), simulated=True)


def on_grid_of_clip(gradient: Floats, clip: float) -> Floats:
    """Return a person's gradient, scaled down to ``clip``, in grid steps of norm at most ``NORM``.

    Args:
        gradient: shape (d,), with d at most 2^26; a gradient that is not finite gives zeros.
        clip: positive.
    """
    with np.errstate(over="ignore", invalid="ignore"):
        peak = float(np.abs(gradient).max())
        if not math.isfinite(peak):
            return np.zeros_like(gradient)
        longer = 1.0
        if peak > 0:  # divide by the peak, so that no square overflows
            longer = max(peak * _norm(gradient / peak) / (_MARGIN * clip), 1.0)
        exact = gradient[None] * ((NORM / clip) / longer)
        (found,) = _rounded([exact], lambda parts: np.square(parts[0]).sum(axis=1, dtype=float))
    return np.asarray(found[0], np.float64)


def rows_of_people(examples: Examples) -> list[tuple[int, NDArray[np.int64]]]:
    """Return, for each number of rows, the rows of the people who have that many.

    Returns:
        Pairs (count, rows), where rows has the shape (people, count); each person's rows keep their
        order.
    """
    if examples.people is None:
        return [(1, np.arange(len(examples))[:, None])]
    order = np.argsort(examples.people, kind="stable")
    _, starts, counts = np.unique(examples.people[order], return_index=True, return_counts=True)
    return [
        (int(count), order[starts[counts == count][:, None] + np.arange(count)])
        for count in np.unique(counts)
    ]


def _rounded(exact: list[Floats], norms: Callable[[list[Floats]], Floats]) -> list[Floats]:
    """Return vectors as integers with norm at most ``NORM``.

    Args:
        exact: parts of the vectors; row i of each part belongs to person i.
        norms: gives the squared norm of each person's vector, with a relative error up to 2^-21.
    """
    found = [np.rint(each) for each in exact]
    for shorter in (np.trunc, np.zeros_like):
        long = ~(norms(found) <= _HOLDS)  # NaN counts as too long
        if not long.any():
            break
        for each, one in zip(found, exact, strict=True):
            each[long] = shorter(one[long])
    return found


def _bounded(values: Floats, bias: bool) -> Floats:
    """Return rows on the grid, with a norm of at most 256, and a 1 for the bias."""
    most = _LONGEST_INPUT * min(1.0, math.sqrt(_MOST_INPUTS / values.shape[1]))
    most = math.floor(most * 2.0**_INPUT_BITS) * 2.0**-_INPUT_BITS
    found = _on_grid(values.clip(-most, most), _INPUT_BITS)
    norms = np.sqrt(np.einsum("ij,ij->i", found, found))  # square roots of exact sums
    long = norms > _MARGIN * _LONGEST_INPUT
    if long.any():
        shrunk = found[long] * (_MARGIN * _LONGEST_INPUT / norms[long])[:, None]
        found[long] = _on_grid(shrunk, _INPUT_BITS)
    return np.hstack([found, np.ones((len(found), 1))]) if bias else found


def _on_grid(values: Floats, bits: int) -> Floats:
    return np.rint(values * 2.0**bits) * 2.0**-bits


def _norm(matrix: Floats) -> float:
    """Return the norm of public numbers; squares are added one by one, to fix its bits."""
    return math.sqrt(np.add.accumulate(np.square(matrix.ravel()))[-1])


def _squares(rows: Floats) -> Floats:
    """Return squared norms; columns are added one after another."""
    found = np.zeros(len(rows))
    for column in rows.T:
        found += np.square(column)
    return found


def _softmax(logits: Floats) -> Floats:
    """Return the probabilities of the classes; each row is computed alone."""
    powers = exp(logits - logits.max(axis=1, keepdims=True))
    total = np.zeros(len(logits))
    for column in powers.T:
        total += column
    found: Floats = powers / total[:, None]
    return found
