"""Inversion: what did the client's image look like?

All the client's examples are the same image, which is the worst case: with different images, the
attack recovers only a mixture.

    first layer   if the first layer is dense, an example x changes its weights by -a x^T and its
                  biases by -a, so that x = dW^T db/|db|^2, whatever the later layers are.
                  Phong, Aono, Hayashi, Wang, Moriai 2018; Geiping et al. 2020, Proposition 3.1.
                  If db is mostly noise, it is better replaced by its mean over the adversary's
                  own clients whose images belong to the guessed class
    matching      if the first layer is a convolution: see ``scoring.matching``

The guessed class is the one along whose mean gradient the update lies most (Zhao, Mopuri, Bilen
2020 read the class from signs, which do not survive noise). The adversary uses whichever of two
decoders does better on its own images; ``Shrinking`` says what it does next.

An attack finds a noisy image z in a report, which ``Shrinking`` moves towards likely images. The
adversary knows the mean m of public images, and the mean of each class, and guesses the class from
the report. From its own images it learns how far to trust the class and the finding: the guess is b
+ s (z - b) with b = m + t (m_class - m), and s is learned for each pixel. So noise does not mislead
the adversary. The error is relative to the error of m alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from fedldp.audit.attacks.intervals import judged, ratio_estimate
from fedldp.audit.attacks.scenario import AttackScenario, Floats
from fedldp.audit.attacks.scoring import Scoring, matching
from fedldp.audit.efforts import Effort
from fedldp.audit.results import AttackResult, Picture
from fedldp.data import Examples

_PRIOR = 10
"""The weight, in images, of the prior belief that all pixels are equally reliable."""


@dataclass(frozen=True, kw_only=True, eq=False)
class Prior:
    """What images look like, judging by public images.

    Attributes:
        mean: the mean of all images, shape (pixels,).
        classes: the mean image of each class, shape (classes, pixels).
        low: the smallest value of a pixel.
        high: the largest value of a pixel.
    """

    mean: Floats
    classes: Floats
    low: float
    high: float

    @classmethod
    def of(cls, public: Examples, num_classes: int) -> Prior:
        """Return the prior from public images; a class without images gets the mean of all."""
        flat = public.features.reshape(len(public), -1).astype(np.float64)
        mean = flat.mean(0)
        classes = np.tile(mean, (num_classes, 1))
        for label in np.unique(public.labels):
            classes[label] = flat[public.labels == label].mean(0)
        return cls(mean=mean, classes=classes, low=float(flat.min()), high=float(flat.max()))


@dataclass(frozen=True, kw_only=True, eq=False)
class Shrinking:
    """How a finding becomes a guess.

    Attributes:
        prior: see ``Prior``.
        class_trust: how far the guess moves from the mean towards the mean of the guessed class.
        trust: how far each pixel of the finding is trusted, from 0 to 1, shape (pixels,).
    """

    prior: Prior
    class_trust: float
    trust: Floats

    @classmethod
    def learned(
        cls, prior: Prior, found: Floats, labels: NDArray[np.int64], originals: Floats
    ) -> Shrinking:
        """Return the least-squares shrinking on the adversary's images, shape (n, pixels)."""
        away = prior.classes[labels] - prior.mean
        scale = float(np.sum(away * away))
        share = float(np.sum(away * (originals - prior.mean))) / scale if scale else 0.0
        share = min(1.0, max(0.0, share))
        start = prior.mean + share * away
        off, right = found.clip(prior.low, prior.high) - start, originals - start
        along, squares = (off * right).sum(0), np.square(off).sum(0)
        overall = along.sum() / squares.sum() if squares.any() else 0.0
        weight = _PRIOR * np.square(off).mean() + 1e-12
        trust = (along + weight * overall) / (squares + weight)
        return cls(prior=prior, class_trust=share, trust=trust.clip(0, 1))

    def __call__(self, found: Floats, labels: NDArray[np.int64]) -> Floats:
        """Return guesses, shape (n, pixels), from findings and guessed classes."""
        mean = self.prior.mean
        start = mean + self.class_trust * (self.prior.classes[labels] - mean)
        within = found.clip(self.prior.low, self.prior.high)
        return np.asarray(start + self.trust * (within - start))


def measured(
    prior: Prior,
    hidden: Examples,
    found: Floats,
    seed: int,
    *,
    subject: str,
    name: str,
    against: str,
    setting: str,
    note: str = "",
) -> AttackResult:
    """Return the result of guessing ``found``, shape (n, pixels), for hidden images."""
    flat = hidden.features.reshape(found.shape).astype(np.float64)
    errors = np.square(found - flat).mean(1)
    blind = np.square(prior.mean - flat).mean(1)
    label = np.square(prior.classes[hidden.labels] - flat).mean(1)
    one = np.ones(len(errors))
    return judged(
        subject,
        "inversion",
        name,
        "error",
        ratio_estimate(errors, blind, seed),
        against=against,
        setting=setting,
        baseline=1.0,
        figures={
            "of who knows the class alone": ratio_estimate(label, blind, seed),
            "mean squared error": ratio_estimate(errors, one, seed),
            "of the mean image": ratio_estimate(blind, one, seed),
        },
        pictures=tuple(
            Picture(original=image, recovered=row.reshape(image.shape).astype(np.float32))
            for image, row in zip(hidden.features, found, strict=True)
        ),
        note=note,
    )


Labels = NDArray[np.int64]

_COPIES_A_ROUND = 2
"""How many copies of the image a client has per round, if it uses each example in one round."""
_CHANNELS = (1, 3)
_MOST_PUBLIC = 2000

FEATURES = "the model gets features of images, from which this attack recovers no image"
OF_SUMS = "matching needs one client's update, and the server sees only sums"


def is_images(scenario: AttackScenario) -> bool:
    """Return whether the examples are images that can be shown."""
    shape = scenario.problem.input_shape
    return len(shape) == 3 and shape[0] in _CHANNELS


def of_reports(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """Return the attack that recovers an image from a client's reports."""
    scoring = Scoring(scenario)
    inputs = scoring.inputs(scenario.public.features[:1], scenario.states[0])
    if inputs is None or inputs.shape[1:] != scenario.problem.input_shape:
        return [_impossible(scenario, FEATURES)]
    dense = first_dense(scenario)
    if dense is None and scenario.sums:
        return [_impossible(scenario, OF_SUMS)]
    known, images = (
        (effort.image_matched, effort.image_matched)
        if dense is None
        else (effort.image_known, effort.image_count)
    )
    own, hidden = (
        scenario.some(scenario.public, known, 8),
        scenario.some(scenario.private, images, 9),
    )
    prior = Prior.of(_public(scenario), scenario.problem.num_classes)
    updates = [
        _updates(scenario, own, 3 * 10**8),
        _updates(scenario, hidden, 3 * 10**8 + known),
    ]
    labels = [guessed_classes(scoring, each) for each in updates]
    if dense is None:
        found = {
            "matching": [
                np.array(
                    [
                        matching(scoring, effort.image_steps, update[0], int(k), prior.classes[k])
                        for update, k in zip(one, guessed, strict=True)
                    ]
                )
                for one, guessed in zip(updates, labels, strict=True)
            ]
        }
    else:
        found = _by_first_layer(scoring, dense, updates, labels, own)
    name, guess = _best(prior, found, labels, own)
    copies = _copies(scenario)
    attack = measured(
        prior,
        hidden,
        guess,
        scenario.seed,
        subject=scenario.config.name(),
        name=name,
        against=scenario.against,
        setting=f"a client with {'one image' if copies == 1 else f'{copies} copies of an image'}; "
        f"{images} images to recover, {known} of the adversary's own",
    )
    return [attack]


def first_dense(scenario: AttackScenario) -> tuple[str, str] | None:
    """Return the names of a dense first layer's weights and biases; None without both."""
    layout = scenario.config.layout(scenario.problem)
    if len(layout.names) < 2:
        return None
    (weight, bias), (shape, units) = layout.names[:2], layout.shapes[:2]
    same = weight.rpartition(".")[0] == bias.rpartition(".")[0]
    pixels = int(np.prod(scenario.problem.input_shape))
    dense = len(shape) == 2 and units == shape[:1] and shape[1] == pixels
    return (weight, bias) if same and dense else None


def first_layer(weights: Floats, biases: Floats, slopes: Floats | None = None) -> Floats:
    """Return the example that changed a dense first layer, shape (inputs,), or zeros.

    Args:
        weights: changes of the layer's weights in each round, shape (rounds, units, inputs).
        biases: changes of its biases, shape (rounds, units).
        slopes: numbers used in place of the changes of the biases; None: the changes are used.
    """
    along = biases if slopes is None else slopes
    below = float(np.sum(along * along))
    if below == 0:
        return np.zeros(weights.shape[2])
    return np.asarray(np.einsum("ru,rui->i", along, weights) / below)


def guessed_classes(scoring: Scoring, updates: Floats) -> Labels:
    """Return the class along whose gradient each update, shape (n, rounds, d), lies most."""
    scenario = scoring.scenario
    public = _public(scenario)
    total = np.zeros((len(updates), scenario.problem.num_classes))
    for at, state in enumerate(scenario.states):
        inputs = scoring.inputs(public.features, state)
        assert inputs is not None
        gradients = scoring.class_gradients(state, inputs, public.labels)
        lengths = np.maximum(np.linalg.norm(gradients, axis=1), 1e-12)
        total -= updates[:, at] @ gradients.T / lengths
    return np.asarray(total.argmax(1))


def _by_first_layer(
    scoring: Scoring,
    names: tuple[str, str],
    updates: list[Floats],
    labels: list[Labels],
    own: Examples,
) -> dict[str, list[Floats]]:
    """Return what each decoder finds in the updates from the adversary's and the hidden images."""
    layout, scale = (
        scoring.scenario.config.layout(scoring.scenario.problem),
        input_scale(scoring, names),
    )
    split = [[[layout.split(row) for row in client] for client in one] for one in updates]
    weights, biases = (
        [np.array([[row[name] for row in client] for client in one]) for one in split]
        for name in names
    )
    mean = np.tile(biases[0].mean(0), (scoring.scenario.problem.num_classes, 1, 1))
    for label in np.unique(own.labels):
        mean[label] = biases[0][own.labels == label].mean(0)
    return {
        "first layer": [
            np.array([first_layer(w, b) for w, b in zip(*both, strict=True)]) / scale
            for both in zip(weights, biases, strict=True)
        ],
        "first layer, with slopes of the class": [
            np.array([first_layer(w, b, mean[k]) for w, b, k in zip(*three, strict=True)]) / scale
            for three in zip(weights, biases, labels, strict=True)
        ],
    }


def _best(
    prior: Prior, found: dict[str, list[Floats]], labels: list[Labels], own: Examples
) -> tuple[str, Floats]:
    """Return the decoder that does best on the adversary's images, and its guesses."""
    originals = own.features.reshape(len(own), -1).astype(np.float64)
    tried = []
    for name, (known, hidden) in found.items():
        shrinking = Shrinking.learned(prior, known, labels[0], originals)
        error = float(np.square(shrinking(known, labels[0]) - originals).mean())
        tried.append((error, name, shrinking(hidden, labels[1])))
    _, name, guess = min(tried, key=lambda each: each[0])
    return name, guess


def input_scale(scoring: Scoring, names: tuple[str, str]) -> float:
    """Return by how much the model scales examples before its first layer, found by a probe."""
    scenario = scoring.scenario
    probe = scenario.public.taken(np.arange(1))
    scoring.load(scenario.states[0].weights)
    loss = scoring.loss(torch.from_numpy(probe.features), torch.from_numpy(probe.labels))
    of = dict(scoring.module.named_parameters())
    weight, bias = (
        g.double().numpy()[None] for g in torch.autograd.grad(loss, [of[n] for n in names])
    )
    image, found = probe.features.ravel().astype(np.float64), first_layer(weight, bias)
    size = float(image @ image)
    return float(found @ image) / size if size and found.any() else 1.0


def _updates(scenario: AttackScenario, examples: Examples, first: int) -> Floats:
    """Return the updates of clients that each have one of ``examples``."""
    copies = _copies(scenario)
    return np.array(
        [
            scenario.report_updates(examples.taken(np.full(copies, at)), first + at)
            for at in range(len(examples))
        ]
    )


def _copies(scenario: AttackScenario) -> int:
    return (
        1
        if scenario.config.longer_begins_with_shorter
        else _COPIES_A_ROUND * scenario.config.rounds
    )


def _public(scenario: AttackScenario) -> Examples:
    return scenario.public.taken(np.arange(min(len(scenario.public), _MOST_PUBLIC)))


def _impossible(scenario: AttackScenario, note: str) -> AttackResult:
    return judged(
        scenario.config.name(), "inversion", "first layer", "error", None, against=scenario.against,
        baseline=1.0, note=note,
    )  # fmt: skip
