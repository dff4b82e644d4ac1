"""Initial weights that come from another run: a file beside the agreement.

The agreement has the digest of the weights, so in round 1 a site notices if the server begins with
other weights. The weights are public: everyone who sees this run's model sees them too. This run's
statement does not cover the data that they were trained on; the statement of the run that produced
them covers those data.
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors import SafetensorError
from safetensors.numpy import load, save

from fedldp.core.bounding import LARGEST_WEIGHT, within_largest_weight
from fedldp.core.errors import ConfigError, os_errors
from fedldp.deployment.agreement import Agreement
from fedldp.deployment.identity import new_file
from fedldp.protocol.client_runtime import digest_of_weights
from fedldp.protocol.wire import Layout, Vector
from fedldp.simulation.result import weights_of


def beside(document: Path) -> Path:
    """Return the path of the weights that belong to an invite or an agreement."""
    return document.with_suffix(".initial.safetensors")


def _content(path: Path) -> bytes:
    """Return the content of a file of weights, or the model of a run folder in the same form."""
    if path.is_dir():
        return save(weights_of(path))
    with os_errors(f"initial {path}", "check the path"):
        return path.read_bytes()


def read_initial(path: Path, layout: Layout) -> Vector:
    """Return the weights in a run folder, or in a file as it has one, shape (d,).

    Raises:
        FedldpError: the weights cannot be read, or do not match the model.
    """
    content = _content(path)
    try:
        found = load(content)
    except (SafetensorError, ValueError, KeyError) as error:
        raise ConfigError(
            f"initial {path}: this is not the model.safetensors of a run folder; give one"
        ) from error
    shapes = zip(layout.names, layout.shapes, strict=True)
    expected = {name: f"float32 of shape {shape}" for name, shape in shapes}
    given = {name: f"{each.dtype} of shape {each.shape}" for name, each in found.items()}
    if given != expected:
        names = sorted(given.keys() | expected.keys())
        name = next(each for each in names if given.get(each) != expected.get(each))
        raise ConfigError(
            f"initial {path}: {name!a:.80} is {given.get(name)}, but {expected.get(name)} in the "
            "run's model; give the weights of a run with the same model"
        )
    weights = np.concatenate([found[name].ravel() for name in layout.names])
    if not within_largest_weight(weights):
        raise ConfigError(
            f"initial {path}: a weight is not a number or is larger than {LARGEST_WEIGHT:g}, so "
            "no site would answer; give other weights"
        )
    return weights


def digest_of_file(path: Path, layout: Layout) -> str:
    """Return the digest of weights for an agreement: 64 hexadecimal digits; see ``read_initial``.

    Raises:
        FedldpError: see ``read_initial``.
    """
    return digest_of_weights(read_initial(path, layout)).hex()


def write_initial(path: Path, document: Path) -> None:
    """Copy weights to the path beside ``document`` where a server looks for such a file.

    Raises:
        FedldpError: see ``read_initial``; or a file at that path exists, or cannot be written.
    """
    new_file(beside(document), _content(path), 0o644)


def agreed_initial(agreement: Agreement, path: Path) -> Vector:
    """Return the weights in a file, if they are the agreed weights.

    Raises:
        ConfigError: these are not the agreed weights; see also ``read_initial``.
    """
    weights = read_initial(path, agreement.layout)
    if digest_of_weights(weights).hex() != agreement.initial:
        raise ConfigError(
            f"initial {path}: these are not the agreed weights, whose digest begins with "
            f"{str(agreement.initial)[:16]}; put the agreed file back"
        )
    return weights
