"""Shrinks recovered images towards likely ones, and measures their error.

An attack finds a noisy image z in a report. The adversary knows the mean m of public images, and
the mean of each class, and guesses the class from the report. From its own images it learns how far
to trust the class and the finding: the guess is b + s (z - b) with b = m + t (m_class - m), and s
is learned for each pixel. So noise does not mislead the adversary. The error is relative to the
error of m alone.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from fedldp.audit.attacks.intervals import judged, ratio_estimate
from fedldp.audit.attacks.scenario import Floats
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
