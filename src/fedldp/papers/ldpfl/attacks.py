"""Inversion of LDPFL's codes: from the randomised bits of an example back to its image.

Such bits stay on the client here, as in the source; but the source claims its epsilon for the bits,
against anyone who has them. The adversary simulates clients with public images, and fits a ridge
regression from their bits to the images. If every client trains its own encoder, one client's bits
say nothing about the meaning of another's.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from sklearn.linear_model import Ridge

from fedldp.audit.attacks.inversion import Prior, Shrinking, is_images, measured
from fedldp.audit.attacks.scenario import AttackScenario
from fedldp.audit.efforts import Effort
from fedldp.audit.results import AttackResult
from fedldp.data import Examples
from fedldp.papers.ldpfl.training import TrainOnBits
from fedldp.training.tensors import one_thread

OWN = "every client has its own encoder, so one client's bits do not explain another's bits"

_SHARE = 0.75
"""The share of public images to which the decoder is fitted; the rest show how far to trust the
decoder."""


def attacks(scenario: AttackScenario, effort: Effort) -> list[AttackResult]:
    """Return the attack on the bits that a client keeps; empty for systems without such bits."""
    step, images = scenario.role.local_update, effort.image_count
    if not isinstance(step, TrainOnBits) or not is_images(scenario):
        return []
    own = scenario.public.taken(np.arange(min(len(scenario.public), effort.image_public)))
    known, seen = _coded(scenario, step, own, 4 * 10**8)
    bits, hidden = _coded(
        scenario, step, scenario.some(scenario.private, 2 * images, 10), 5 * 10**8
    )
    bits, hidden = bits[:images], hidden.taken(np.arange(min(images, len(hidden))))
    fitted = int(_SHARE * len(known))
    flat = seen.features.reshape(len(seen), -1).astype(np.float64)
    prior = Prior.of(seen.taken(np.arange(fitted)), scenario.problem.num_classes)
    model = Ridge(alpha=known.shape[1] / 4).fit(known[:fitted], flat[:fitted])
    rest = model.predict(known[fitted:])
    nothing = np.zeros(len(rest), np.int64)  # classes, which this attack does not guess
    shrinking = Shrinking.learned(prior, rest, nothing, flat[fitted:])
    found = shrinking(model.predict(bits), np.zeros(len(bits), np.int64))
    attack = measured(
        prior,
        hidden,
        found,
        scenario.seed,
        subject=scenario.config.name(),
        name="codes",
        against="the bits that one client keeps",
        setting=f"a decoder fitted on {fitted} public images; {len(found)} to recover",
        note=OWN if step.codes.settings.encoder == "own" else "",
    )
    return [attack]


def _coded(
    scenario: AttackScenario, step: TrainOnBits, examples: Examples, first: int
) -> tuple[NDArray[np.float32], Examples]:
    """Return the bits that clients with ``examples`` keep, shape (n, bits), and their images.

    Each client has ``scenario.size`` examples, on which it trains its own encoder.
    """
    bits, features, labels = [], [], []
    broadcast = scenario.server.publish(scenario.states[0])
    for number, start in enumerate(range(0, len(examples), scenario.size)):
        own = examples.taken(np.arange(start, min(start + scenario.size, len(examples))))
        (client,) = scenario.runtime(own, first + number).members.batch([scenario.client], 1)
        with one_thread():
            kept = step.codes.for_training(broadcast, client)
        order = client.kept("split").generator().permutation(len(own))
        trained = own.taken(np.sort(order[: len(kept["labels"])]))
        bits.append(step.codes.inputs(kept["bits"]))
        features.append(trained.features)
        labels.append(trained.labels)
    return np.concatenate(bits), Examples(np.concatenate(features), np.concatenate(labels))
