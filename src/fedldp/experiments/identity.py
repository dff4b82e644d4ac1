"""The one digest of "the same run": equal digests mean equal numbers.

It has what determines a run's numbers and nothing else: no name of a recipe, a contestant or a
file, no number of workers, no version of a package.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

from fedldp.algorithms.config import RunConfig
from fedldp.data import Dataset, is_own_file
from fedldp.data.folder import in_use, resolve_data_dir
from fedldp.data.sources import SOURCES, PublishedDataset, find_source

OWN = "own"
"""What stands for private data: a digest of them would confirm a guess of what they are."""


def run_digest(
    config: RunConfig,
    data: str,
    *,
    part: str = "",
    code: str = "",
    device: str = "cpu",
) -> str:
    """Return the digest of a run: 32 hexadecimal digits.

    Args:
        config: the configuration, with a target instead of the budget that is solved for.
        data: the data, see ``data_digests``; ``OWN`` for private data.
        part: what part of the data trains and tests, if not all of them as they are.
        code: a digest of the user's own code.
        device: the device that trains.
    """
    more = {"part": part, "code": code, "device": "" if device == "cpu" else device}
    return _digest(config, data, (), {name: value for name, value in more.items() if value})


def family_digest(config: RunConfig, data: str) -> str:
    """Return the digest that the runs of a configuration with different seeds share.

    The number of rounds does not count if a longer run begins with a shorter run's results.

    Args:
        config: the configuration of one of them.
        data: see ``run_digest``.
    """
    longer = ("rounds",) if config.longer_begins_with_shorter else ()
    return _digest(config, data, ("seed", *longer), {})


def _digest(config: RunConfig, data: str, without: tuple[str, ...], more: dict[str, str]) -> str:
    paths = ("dataset", "test_file") if data == OWN else ()
    content = config.identity((*without, *paths)) | {"data": data} | more
    content["tested_on"] = config.composition.local.tested_on
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def digest_of_data(data: Dataset, config: RunConfig, root: Path | None = None) -> str:
    """Return the digest of a run's data: of the files in use, or ``OWN`` for private data.

    Args:
        data: the data that were loaded, perhaps a stand-in.
        config: the run's configuration, which may name a second, public data set.
        root: the data folder; None for the default folder.
    """
    if not data.is_public:
        return OWN
    public = getattr(config, "public_dataset", None)
    more = _digests_of(public, resolve_data_dir(root)) if public is not None else [""]
    return _digest_of(SOURCES[data.name]) + more[0]


def data_digests(config: RunConfig, root: Path | None = None) -> list[str]:
    """Return digests of the data that ``config`` may use, or, given ``root``, of the data it uses.

    A data set with a smaller stand-in has two digests.
    """
    names = [config.dataset, getattr(config, "public_dataset", None)]
    found = [""]
    for name in filter(None, names):
        found = [f"{before}{one}" for before in found for one in _digests_of(name, root)]
    return found


def _digests_of(name: str, root: Path | None) -> list[str]:
    if is_own_file(name):
        return [OWN]
    source = find_source(name)
    if root is not None:
        return [_digest_of(in_use(source, root))]
    return [_digest_of(each) for each in (source, source.stand_in) if each is not None]


def _digest_of(source: PublishedDataset) -> str:
    sums = ",".join(file.sha256 for file in source.files)
    return f"{source.name}:{hashlib.sha256(sums.encode()).hexdigest()};"
