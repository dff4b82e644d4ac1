"""The only source of randomness: known answers, reading in pieces, and no other source."""

from __future__ import annotations

import ast
import inspect
import itertools
import json
import re
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import torch
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

import fedldp
from fedldp.core.errors import PrivacyError
from fedldp.core.randomness import (
    PURPOSES,
    Source,
    Stream,
    check_purpose,
    declare,
    torch_seeded,
)

KEY = bytes(range(32))


def simulated(**changes: int | str) -> Stream:
    names = {"seed": 5, "round": 1, "client": 3, "purpose": "batches", **changes}
    return Stream.simulation(**names)  # type: ignore[arg-type]


def taken(stream: Stream, count: int = 64) -> bytes:
    return bytes(stream.bytes(count))


# The keystream


def test_the_keystream_is_counters_encrypted_one_by_one() -> None:
    # To be independent of the counter mode under test, encrypt each counter with the block cipher
    # alone.
    block_cipher = Cipher(algorithms.AES(KEY), modes.ECB()).encryptor()
    counters = b"".join(n.to_bytes(16, "big") for n in range(20_000))
    assert taken(Stream(KEY, simulated=True), 320_000) == block_cipher.update(counters)


@pytest.mark.parametrize("first", [1, 15, 65_535, 65_536, 65_537, 262_143, 262_144, 262_145])
def test_a_stream_can_be_read_in_large_pieces(first: int) -> None:
    stream = Stream(KEY, simulated=True)
    pieces = taken(stream, first) + taken(stream, 300_001)
    assert pieces == taken(Stream(KEY, simulated=True), first + 300_001)


def test_an_earlier_read_is_not_changed_by_a_later_one() -> None:
    stream = Stream(KEY, simulated=True)
    first = stream.integers(100, np.int32)
    before = first.copy()
    stream.integers(100, np.int32)
    stream.bytes(1000)
    assert np.array_equal(first, before)


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint32, np.int64, np.uint64])
def test_integers_are_the_bytes_in_native_order(dtype: type[np.integer]) -> None:
    found = Stream(KEY, simulated=True).integers(1000, dtype)
    assert found.dtype == dtype
    assert found.shape == (1000,)
    assert found.tobytes() == taken(Stream(KEY, simulated=True), 1000 * np.dtype(dtype).itemsize)


@pytest.mark.parametrize("length", [0, 16, 24, 31, 33, 64])
def test_a_key_of_another_length_is_an_internal_error(length: int) -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        Stream(bytes(length), simulated=True)


# Streams of a simulation


def test_no_two_small_names_share_a_stream() -> None:
    numbers = (0, 1, 2, 10, 11, 12, 21, 110, 111)
    purposes = ("a", "b", "1/a", "1", "")
    names = list(itertools.product(numbers, numbers, (-1, *numbers), purposes))
    found = {
        taken(Stream.simulation(seed=seed, round=round, client=client, purpose=purpose), 16)
        for seed, round, client, purpose in names
    }
    assert len(found) == len(names)


def test_the_streams_of_a_seed_stay_the_same_between_versions() -> None:
    # A run is identified by its seed: if this changed, no recorded run could be repeated.
    stream = Stream.simulation(seed=1, round=2, client=3, purpose="mechanism")
    assert taken(stream, 16).hex() == "a8f95ecd7f02cb9eeea24efee9d01525"


# Streams of a deployment


def test_fresh_streams_cannot_be_repeated() -> None:
    found = set()
    for _ in range(50):
        np.random.seed(0)
        torch.manual_seed(0)
        stream = Stream.fresh()
        assert not stream.simulated
        found.add(taken(stream, 16))
    assert len(found) == 50


# Generators for values that are not released


def test_a_generator_follows_its_stream() -> None:
    first, same, other = (simulated(client=c).generator().random(5) for c in (1, 1, 2))
    assert first.tolist() == same.tolist()
    assert first.tolist() != other.tolist()


def test_draws_of_two_threads_follow_their_own_streams() -> None:
    """As in an agent that answers two runs at once: torch has one generator for all threads."""
    alone = {}
    for place in range(2):
        with torch_seeded(simulated(client=place)):
            alone[place] = torch.cat([torch.rand(3), torch.rand(3)])
    found: dict[int, torch.Tensor] = {}
    inside = threading.Event()

    def draw(place: int) -> None:
        with torch_seeded(simulated(client=place)):
            first = torch.rand(3)
            if place == 0:
                other.start()
                inside.wait(0.2)  # which the other thread sets only if it can draw meanwhile
            inside.set()
            found[place] = torch.cat([first, torch.rand(3)])

    other = threading.Thread(target=draw, args=(1,))
    draw(0)
    other.join()
    assert all(torch.equal(found[place], alone[place]) for place in range(2))


def test_torch_follows_the_stream_inside_and_not_outside() -> None:
    torch.manual_seed(123)
    expected = torch.rand(3)
    torch.manual_seed(123)
    with torch_seeded(simulated()):
        inside = torch.rand(3)
    assert torch.equal(torch.rand(3), expected)
    with torch_seeded(simulated()):
        assert torch.equal(torch.rand(3), inside)
    torch.manual_seed(123)
    with pytest.raises(AssertionError), torch_seeded(simulated(client=4)):
        assert torch.equal(torch.rand(3), inside)
    assert torch.equal(torch.rand(3), expected)  # after an error too


# No other source of randomness

SOURCE = Path(inspect.getfile(fedldp)).parent
MODULES = sorted(SOURCE.rglob("*.py"))


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE).as_posix()


@pytest.mark.slow
@pytest.mark.parametrize(
    "line",
    ["import random", "from numpy.random import default_rng", "np.random.rand(3)",
     "np.random.default_rng(0)", "torch.manual_seed(0)", "from os import urandom", "os.urandom(3)",
     "import secrets", "torch.randn(2)", "draw = os.urandom", "map(torch.Generator, x)"],
)  # fmt: skip
def test_the_linter_finds_randomness_of_its_own(line: str) -> None:
    """It looks at all other modules: see banned-api in pyproject.toml."""
    pytest.importorskip("ruff")
    source = f"import os\nimport numpy as np\nimport torch\n{line}\n"
    command = [sys.executable, "-m", "ruff", "check", "--select", "TID251", "-"]
    place = ["--stdin-filename", "src/fedldp/new.py"]
    done = subprocess.run(
        [*command, *place], input=source, cwd=SOURCE.parents[1], capture_output=True, text=True
    )
    assert (done.returncode, "draw from a Stream" in done.stdout) == (1, True), done


KEYS = {
    "audit/observations.py": {"Stream", "Stream.derived"},
    "audit/adversary_views.py": {"Stream.simulation"},
    "audit/poisoning.py": {"Stream.simulation"},  # what liars send
    "audit/harness.py": {"Stream"},
    "audit/system_checks.py": {"Stream"},  # noise whose size is checked
    "mechanisms/k_closest.py": {"Stream"},  # seeds that are sent
    "mechanisms/nearest_direction.py": {"Stream"},  # a public table
    "mechanisms/rotation.py": {"Stream.derived"},  # a public rotation
    "protocol/keys.py": {"Stream", "Stream.derived", "Stream.simulation"},
    "papers/ldp_fl/claims.py": {"Stream.simulation"},  # a model to count
    "secure_sum/client.py": {"Stream"},  # of the round's secret, drawn for "secure sum"
    "secure_sum/crypto.py": {"Stream"},  # masks
    "simulation/shuffler.py": {"Stream.simulation"},
}
"""Modules that give a stream its key. All others get their streams from these, for a purpose."""


def keys_streams(text: str) -> set[str]:
    """Return how a module keys streams; a key of zeros is public, and hides nothing."""
    found = set()
    for node in ast.walk(ast.parse(text)):
        if not isinstance(node, ast.Call):
            continue
        called = ast.unparse(node.func)
        zeros = bool(node.args) and ast.unparse(node.args[0]).startswith("bytes(")
        if called in ("Stream", "Stream.fresh", "Stream.derived", "Stream.simulation") and not (
            called == "Stream" and zeros
        ):
            found.add(called)
    return found


@pytest.mark.slow
def test_no_other_module_keys_a_stream() -> None:
    for path in MODULES:
        if path != SOURCE / "core" / "randomness.py" and SOURCE / "testing" not in path.parents:
            found = keys_streams(path.read_text(encoding="utf-8"))
            assert found == KEYS.get(name_of(path), set()), path


# Purposes

OF_THE_HOUSE = {
    Source.FRESH: {"augmentation", "batches", "mechanism", "model", "people", "secure sum"},
    Source.KEPT: {"held-out people", "portions", "rows of a person"},
    Source.ROUND: {"dropouts", "mechanism", "noise on *", "participation", "selection"},
    Source.RUN: {"cohorts", "examples", "partition", "rows of a person", "turns", "weights"},
    Source.WORLD: {"arrivals", "delay", "latency"},
}
"""Noise in any row but FRESH and ROUND would repeat, and a once-only choice in one of these two
would be made again in every round."""


def test_the_table_is_this_one() -> None:
    """Papers and users' own parts only add to it; their tests name what they add."""
    script = (
        "import json; from fedldp.core.randomness import PURPOSES; "
        "print(json.dumps({source.name: sorted(rows) for source, rows in PURPOSES.items()}))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, check=True)
    assert json.loads(done.stdout) == {s.name: sorted(rows) for s, rows in OF_THE_HOUSE.items()}


@pytest.mark.parametrize("source", Source)
def test_each_purpose_draws_from_no_other_source(source: Source) -> None:
    for row in OF_THE_HOUSE[source]:
        purpose = row.replace("*", "any text")
        check_purpose(source, purpose)
        for other in Source:
            if row not in OF_THE_HOUSE[other]:
                with pytest.raises(PrivacyError, match=re.escape(repr(purpose))):
                    check_purpose(other, purpose)


def test_a_party_draws_for_a_purpose_either_afresh_or_once() -> None:
    for source, other in ((Source.FRESH, Source.KEPT), (Source.ROUND, Source.RUN)):
        for one, two in ((source, other), (other, source)):
            name = f"test {one.name}"
            declare(one, name)
            declare(one, name)
            try:
                with pytest.raises(PrivacyError, match=f"purpose '{name}': .*choose another name"):
                    declare(two, name)
            finally:
                PURPOSES[one].remove(name)


@pytest.mark.parametrize("purpose", ["*", "m*", "mechanism*", "mechanism"])
def test_no_wildcard_lets_noise_come_from_a_stream_that_is_kept(purpose: str) -> None:
    with pytest.raises(PrivacyError, match="choose another name"):
        declare(Source.KEPT, purpose)
    with pytest.raises(PrivacyError, match="choose another name"):
        declare(Source.RUN, f"noise on {purpose}")
    with pytest.raises(PrivacyError):
        check_purpose(Source.KEPT, "mechanism")


def test_an_unknown_purpose_is_refused_in_one_line() -> None:
    with pytest.raises(PrivacyError, match=r"^purpose 'unheard of': .*randomness.declare in "):
        check_purpose(Source.KEPT, "unheard of")
