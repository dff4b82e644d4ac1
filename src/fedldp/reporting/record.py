"""The run folder: what a run writes, and how it comes back after an interruption.

config.json        the resolved configuration
environment.json   versions and hardware
privacy.json       the statement, written before training starts
metrics.jsonl      one line for each round
checkpoint         the state after the last complete round, replaced atomically
model.safetensors  the final weights
summary.json       the result, as `fedldp run --json` prints it
report.html        the same for people
arrivals/          every message's position and time, where record_arrivals is on
"""

from __future__ import annotations

import json
import os
import platform
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors import SafetensorError, safe_open
from safetensors.numpy import save

from fedldp.accounting.memory_ledger import MemoryLedger
from fedldp.bounding import Ranges
from fedldp.errors import ConfigError, RunError
from fedldp.wire import Broadcast, Layout, Shuffled

_PUBLIC = "public."


@dataclass(frozen=True, kw_only=True)
class Round:
    """What one round gave.

    Attributes:
        round: counted from 1.
        clients: how many took part.
        accuracy: of the new global model, 0 to 1, on what ``SystemConfig.tested_on`` says.
        loss: its mean cross-entropy there.
        uplink_bits_per_client: mean bits that a client sent, position labels included.
        seconds: wall-clock time.
        arrivals: for shuffled rounds, in seconds: T (delay), T_S (response), the first and last of
            the clients' T_W (wait) and of all arrivals.
        notes: a system's own figures, by name.
    """

    round: int
    clients: int
    accuracy: float
    loss: float
    uplink_bits_per_client: float
    seconds: float
    arrivals: dict[str, float] | None = None
    notes: dict[str, float] = field(default_factory=dict)


class RunFolder:
    """A run's folder on disk."""

    def __init__(self, path: Path, *, found: bool = True) -> None:
        self.path = path
        self._found = found

    @classmethod
    def create(cls, path: Path, config: Mapping[str, Any], privacy: Mapping[str, Any]) -> RunFolder:
        """Make a new folder and write what is known before training.

        Raises:
            RunError: the folder exists and is not empty, or cannot be written.
        """
        try:
            if path.exists() and (not path.is_dir() or any(path.iterdir())):
                raise RunError(
                    f"out = {path}: it exists already; choose another folder, or --resume {path}"
                )
            folder = cls(path, found=path.exists())
            path.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise RunError(f"out = {path}: {error.strerror}; choose a writable folder") from error
        folder.write_json("config.json", config)
        folder.describe(privacy)
        return folder

    def describe(self, privacy: Mapping[str, Any]) -> None:
        """Write what else is known before training: where the run takes place, and its privacy."""
        # A resumed run keeps the record of the machine that it began on.
        if not (self.path / "environment.json").exists():
            self.write_json("environment.json", environment())
        self.write_json("privacy.json", privacy)

    def discard(self) -> None:
        """Leave the place as it was: for a run that ended before its first round was complete."""
        if not self._found:
            shutil.rmtree(self.path, ignore_errors=True)
            return
        for entry in self.path.glob("*"):
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()

    def write_json(self, name: str, content: Mapping[str, Any]) -> None:
        """Write ``content`` atomically."""
        document = json.dumps(content, indent=2, allow_nan=False) + "\n"
        replace_file(self.path / name, document.encode())

    def read_config(self) -> dict[str, Any]:
        """Return the document that the run started from: "recipe", "config" and "own_data".

        Raises:
            RunError: this is no run folder, or its config.json is damaged.
        """
        path = self.path / "config.json"
        try:
            document: Any = json.loads(path.read_text())
        except OSError as error:
            raise RunError(
                f"resume = {self.path}: no run folder with a config.json; give the folder of a run"
            ) from error
        except ValueError as error:
            raise RunError(f"{path} is damaged: start the run anew") from error
        whole = isinstance(document, dict) and {"recipe", "config", "own_data"} <= set(document)
        if not whole or not isinstance(document["config"], dict):
            raise RunError(f"{path} is damaged: start the run anew")
        return dict(document)

    def write_round(
        self, broadcast: Broadcast, rounds: Sequence[Round], ledger: MemoryLedger
    ) -> None:
        """Record a complete round: the line of metrics and the checkpoint."""
        tensors: dict[str, np.ndarray[Any, Any]] = {"weights": broadcast.weights}
        metadata = {
            "round": str(broadcast.round),
            "rounds": json.dumps([asdict(r) for r in rounds]),
            "ledger": json.dumps(ledger.to_record()),
        }
        if broadcast.ranges is not None:
            tensors["centers"] = broadcast.ranges.centers
            tensors["radii"] = broadcast.ranges.radii
            metadata["sizes"] = json.dumps(broadcast.ranges.sizes)
        tensors |= {_PUBLIC + name: value for name, value in broadcast.public.items()}
        # safetensors writes the memory as it lies, and would scramble a view with strides.
        whole = {name: np.require(value, requirements="C") for name, value in tensors.items()}
        replace_file(self.path / "checkpoint", save(whole, metadata))
        self.write_metrics(rounds)

    def write_metrics(self, rounds: Sequence[Round]) -> None:
        """Write the metrics of all rounds; after a kill they follow the checkpoint."""
        lines = "".join(json.dumps(asdict(r), allow_nan=False) + "\n" for r in rounds)
        replace_file(self.path / "metrics.jsonl", lines.encode())

    def write_arrivals(self, block: int, messages: Shuffled) -> None:
        """Record which position arrived when, in one block of a round's messages."""
        place = self.path / "arrivals"
        place.mkdir(exist_ok=True)
        np.savez(
            place / f"round-{messages.round:04}-block-{block:04}.npz",
            positions=messages.positions.astype(np.int32),
            arrival_seconds=messages.arrival_seconds.astype(np.float32),
        )

    def read_checkpoint(self) -> tuple[Broadcast, list[Round], MemoryLedger] | None:
        """Return the state after the last complete round, or None where there is none.

        Raises:
            RunError: the checkpoint is damaged.
        """
        path = self.path / "checkpoint"
        if not path.exists():
            return None
        try:
            with safe_open(path, framework="numpy") as file:
                metadata = file.metadata()
                ranges = None
                if "sizes" in metadata:
                    ranges = Ranges(
                        file.get_tensor("centers"),
                        file.get_tensor("radii"),
                        tuple(json.loads(metadata["sizes"])),
                    )
                broadcast = Broadcast(
                    round=int(metadata["round"]),
                    weights=file.get_tensor("weights"),
                    ranges=ranges,
                    public={
                        key.removeprefix(_PUBLIC): file.get_tensor(key)
                        for key in file.keys()  # noqa: SIM118 (it is no mapping)
                        if key.startswith(_PUBLIC)
                    },
                )
            rounds = [Round(**r) for r in json.loads(metadata["rounds"])]
            ledger = MemoryLedger.from_record(json.loads(metadata["ledger"]))
        except (
            SafetensorError,
            KeyError,
            ValueError,
            TypeError,
            AttributeError,
            OSError,
            ConfigError,
        ) as error:
            raise RunError(f"{path} is damaged ({error}): start the run anew") from error
        weights = broadcast.weights
        sound = weights.dtype == np.float32 and weights.ndim == 1 and np.isfinite(weights).all()
        if not sound or len(rounds) != broadcast.round - 1:
            raise RunError(f"{path} is damaged: start the run anew")
        return broadcast, rounds, ledger

    def write_model(self, layout: Layout, weights: np.ndarray[Any, Any]) -> None:
        """Write the weights by parameter name."""
        tensors = {name: piece.copy() for name, piece in layout.split(weights).items()}
        replace_file(self.path / "model.safetensors", save(tensors))


def replace_file(path: Path, content: bytes) -> None:
    """Write ``content`` to ``path`` so that a crash leaves the old or the new file, whole.

    Raises:
        RunError: the folder is not there, not writable, or full.
    """
    partial = path.with_name(path.name + ".partial")
    try:
        with partial.open("wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        partial.replace(path)
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    except OSError as error:
        raise RunError(f"cannot write {path}: {error.strerror}; see to the folder") from error


def environment() -> dict[str, Any]:
    """Return versions and hardware: what a reader needs to repeat the run."""
    packages = ("fedldp", "torch", "numpy", "scikit-learn", "cryptography")
    cuda = torch.cuda.is_available()
    return {
        "python": platform.python_version(),
        "platform": platform.platform(),
        "packages": {name: version(name) for name in packages},
        "cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if cuda else None,
    }
