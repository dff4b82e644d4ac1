"""One of many public directions, likely among the k closest: a whole vector in 18 or 20 bytes.

Source: the weights are those of subset selection (Ye, Barg 2018, "Optimal Schemes for Discrete
Distribution Estimation under Locally Differential Privacy"). Giving the larger weight to the k
closest of M public directions is from Isik, Chen, Ozgur, Weissman, No 2023, "Exact Optimality of
Communication-Privacy-Utility Tradeoffs in Distributed Mean Estimation", section 4. Directions from
Hadamard frames with random signs replace their rotated simplex; the integers are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any, ClassVar, Literal

import numpy as np
from numpy.typing import NDArray

from fedldp.accounting.events import PureReport, SubsetResponse
from fedldp.core.bounding import check_releasable, longest_blocks, scaled_down
from fedldp.core.deferred import special
from fedldp.core.errors import ConfigError, RunError
from fedldp.core.numbers import exp_below
from fedldp.core.randomness import Stream
from fedldp.mechanisms import Mechanism, MechanismSettings, SummedReports, check_block
from fedldp.mechanisms.grids import check_between
from fedldp.mechanisms.piecewise import Window
from fedldp.mechanisms.rotation import LARGEST_SIZE, padded_size, transform

SMALLEST_EPSILON, LARGEST_EPSILON = 1e-6, 1e9
LARGEST_USED = 32.0
"""Budget beyond this is not used: a report is then nearly always one of the closest."""
SMALLEST_DIMENSION = 2048
"""Shorter vectors are padded to this size: frames of fewer coordinates are not random enough."""
MOST_FRAMES = 3
"""The default limit on frames, because the cost of a report grows with their number."""

_SEED_BYTES = 16
_LABEL = b"k_closest frames"
_LARGEST_CLIP = 1e6
_TWO_BYTES = 1 << 16
_MOST_DIRECTIONS = 1 << 32
_GAIN = 0.01
_MOST_SINGLE = 1 << 14
_BLOCK = 1 << 16


@dataclass(frozen=True)
class Frames:
    """M = 2 P B public directions of norm sqrt(P): B orthogonal frames, and their opposites.

    Take Hadamard's matrix H, the unit vector e_i, and diagonal sign matrices S, S' and S_b from a
    seed. Direction i of frame b is S H S' H S_b H e_i/P. Two transforms compute it, and no matrix
    of directions is ever built. Category 2 (b P + i) is that direction, and the next one its
    opposite. With two factors H S instead of three, the estimates of vectors with few coordinates
    are biased by 1 to 4 %.

    Attributes:
        dimension: P, a power of two, from 8 to 2^26.
        count: B.

    Raises:
        ConfigError: ``dimension`` is not such a power of two, ``count`` is below 1, or there are
            more directions than four bytes can number.
    """

    dimension: int
    count: int

    def __post_init__(self) -> None:
        if not 8 <= self.dimension == padded_size(self.dimension) <= LARGEST_SIZE:
            raise ConfigError(
                f"dimension = {self.dimension}: give a power of two from 8 to {LARGEST_SIZE}"
            )
        most = _MOST_DIRECTIONS // (2 * self.dimension)
        if not 1 <= self.count <= most:
            raise ConfigError(
                f"frames = {self.count}: give an integer from 1 to {most} for "
                f"{self.dimension} coordinates"
            )

    @property
    def pairs(self) -> int:
        """P B: the number of pairs of a direction and its opposite."""
        return self.dimension * self.count

    @property
    def directions(self) -> int:
        """M."""
        return 2 * self.pairs

    def signs(self, seeds: Sequence[bytes]) -> NDArray[np.uint8]:
        """Return packed bits, 1 for each -1 of S, S' and each S_b; shape (n, B + 2, P/8)."""
        num_bytes = (self.count + 2) * self.dimension // 8
        drawn = [Stream(seed + _LABEL, simulated=True).bytes(num_bytes) for seed in seeds]
        return np.array(drawn).reshape(len(seeds), self.count + 2, -1)

    def room(self, vectors: int) -> NDArray[Any]:
        """Return working memory for ``along`` with that many vectors.

        Callers with many blocks should reuse it, because allocating memory for each one is slow.
        """
        return np.empty((2, vectors * self.pairs), _kind(self.dimension))

    def along(
        self,
        units: NDArray[np.float64],
        seeds: Sequence[bytes],
        room: NDArray[Any] | None = None,
    ) -> NDArray[np.float32] | NDArray[np.float64]:
        """Return numbers proportional to the inner products of vectors with directions.

        All sums are of integers and exact, so a vector has the same numbers on every machine,
        whether it is computed alone or with other vectors. To achieve that, the coordinates of u
        are rounded by at most 2^-17, and those of H S u and H S' H S u/sqrt(P), whose mean square
        is 1, by at most 2^-10.

        Args:
            units: vectors of norm 1, shape (n, D) with D <= P.
            seeds: one for each vector.
            room: memory for at least n vectors, which then holds the result; None to allocate it.

        Returns:
            Shape (n, P B): each vector's numbers for directions 0, 2, 4, ...
        """
        count, kind = len(units), _kind(self.dimension)
        first, second = self._exact_bits()
        signs = self.signs(seeds)
        here, there = self.room(count) if room is None else room
        whole, other = (self._rows(each, count) for each in (here, there))
        whole[:, : units.shape[1]] = units
        whole[:, units.shape[1] :] = 0
        scales = (2.0**first, 2.0 ** (second - first), 1 / math.sqrt(self.dimension))
        for number, scale in enumerate(scales):
            whole *= kind(scale)
            np.rint(whole, out=whole)
            if number < 2:
                whole *= _unpacked(signs[:, number], other)
                whole, other = transform(whole, other)
        if np.shares_memory(whole, there):
            here, there = there, here
        turned = self._rows(there, count * self.count)
        frames = _unpacked(signs[:, 2:].reshape(len(turned), -1), turned)
        frames = frames.reshape(count, self.count, self.dimension)
        frames *= whole[:, None]
        found, _ = transform(turned, self._rows(here, len(turned)))
        return found.reshape(count, self.pairs)

    def rows(
        self, seeds: Sequence[bytes], categories: NDArray[np.int64], size: int
    ) -> NDArray[np.floating]:
        """Return the first ``size`` coordinates of directions, times P.

        Args:
            seeds: n seeds.
            categories: one for each seed, shape (n,).
            size: at most P.

        Returns:
            Exact whole numbers, shape (n, size).
        """
        signs = self.signs(seeds)
        frame, row = np.divmod(categories // 2, self.dimension)
        # Row i of H has -1 where i & j has an odd number of ones, computed here in packed bits,
        # byte by byte.
        odd = np.bitwise_count((row >> 3)[:, None] & np.arange(self.dimension // 8)) & 1
        minus = signs[np.arange(len(seeds)), frame + 2] ^ (odd * np.uint8(255))
        minus ^= (_LOW_ROWS[row & 7] ^ (categories % 2 * 255).astype(np.uint8))[:, None]
        here, there = np.empty((2, len(seeds), self.dimension), _kind(self.dimension))
        # A direction has norm P, so its L1 norm is at most P sqrt(P).
        here, there = transform(_unpacked(minus, here), there)
        here *= _unpacked(signs[:, 1], there)
        here, there = transform(here, there)
        here *= _unpacked(signs[:, 0], there)
        found: NDArray[np.floating] = here[:, :size]
        return found

    @property
    def size_along(self) -> float:
        """The root mean square of the numbers that ``along`` returns."""
        return float(2.0 ** self._exact_bits()[1] * math.sqrt(self.dimension))

    def _exact_bits(self) -> tuple[int, int]:
        """Return the number of binary places of u and of H S u.

        For norm 1, |u|_1 <= sqrt(P) and |H S u|_1 <= P: all sums stay below 2^24 or 2^53.
        """
        exact, bits = 23 if _kind(self.dimension) is np.float32 else 52, self.dimension.bit_length()
        return exact - bits // 2, exact - bits + 1

    def _rows(self, memory: NDArray[Any], count: int) -> NDArray[Any]:
        return memory[: count * self.dimension].reshape(count, self.dimension)


def _true_in_rows(rows: NDArray[np.bool_]) -> NDArray[np.int64]:
    # Viewed as bytes, because numpy converts bools one by one.
    return rows.view(np.uint8).sum(1, dtype=np.uint32).astype(np.int64)  # type: ignore[no-any-return]


def _kind(dimension: int) -> Any:
    return np.float32 if dimension <= _MOST_SINGLE else np.float64


@dataclass(frozen=True)
class FrameChoice:
    """Frames, k, and the integer weights by which one of the directions is drawn.

    Attributes:
        epsilon: the budget of a report, from 1e-6 to ``LARGEST_USED``.
        frames: the directions.
        closest: k, from 1 to M/2.
        blocks: the number of blocks of a vector of which only the longest is reported. Each block
            has all M directions, so there are ``blocks`` times as many categories.

    Raises:
        ConfigError: ``epsilon`` or ``closest`` is out of range, or so large that the weights of the
            closest use up 64 bits; or there are more categories than four bytes can number.
    """

    epsilon: float
    frames: Frames
    closest: int
    blocks: int = 1

    def __post_init__(self) -> None:
        check_between("epsilon", self.epsilon, SMALLEST_EPSILON, LARGEST_USED)
        if not 1 <= self.closest <= self.frames.pairs:
            raise ConfigError(
                f"closest = {self.closest}: give an integer from 1 to {self.frames.pairs}, half of "
                "the directions"
            )
        if self.blocks * self.frames.directions > _MOST_DIRECTIONS:
            most = _MOST_DIRECTIONS // self.frames.directions
            raise ConfigError(
                f"blocks = {self.blocks}: with {self.frames.directions} directions for each block, "
                f"four bytes cannot number them all; give at most {most}, or fewer frames"
            )
        if not self.window.low:
            raise ConfigError(
                f"closest = {self.closest} and epsilon = {self.epsilon:g}: their weights fill 64 "
                "bits and leave none for the other directions; give a smaller closest or epsilon"
            )

    @cached_property
    def window(self) -> Window:
        """The weights: high H for each of the k closest directions, low L for the others."""
        ratio = exp_below(Fraction(self.epsilon))
        return Window.of_ratio(ratio, self.closest, self.blocks * self.frames.directions)

    @property
    def realised_epsilon(self) -> float:
        """The pure epsilon of a report, ln(H/L), rounded up."""
        return self.window.realised(self.epsilon)

    @property
    def advantage(self) -> float:
        """(H - L)/total: by how much one of the k closest is likelier than another direction."""
        return (self.window.high - self.window.low) / self.window.total

    @cached_property
    def scale(self) -> float:
        """The norm of a report's expectation for a unit vector, (H - L) S_k/total.

        S_k is the expected sum of the k largest inner products. All M directions sum to zero.
        """
        return self.advantage * _top_sum(self.frames, self.closest, 1)

    def mean_square(self, unit: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the mean square of each coordinate of a report, within the vector's own block.

        For one of the closest it is u^2 T/k + (1 - u^2) (P - T/k)/(P - 1), where T is the expected
        sum of the k largest squared inner products. The squares of all M sum to M.
        """
        square = _top_sum(self.frames, self.closest, 2) / self.closest
        across = (self.frames.dimension - square) / (self.frames.dimension - 1)
        closest = unit**2 * square + (1 - unit**2) * across
        everywhere = self.frames.directions * self.window.low / self.window.total
        return self.closest * self.advantage * closest + everywhere

    def draw(
        self,
        along: NDArray[np.floating],
        streams: Sequence[Stream],
        own: NDArray[np.int64] | None = None,
    ) -> NDArray[np.unsignedinteger]:
        """Return a random category for each row of ``Frames.along``, shape (n,).

        Categories of block b begin at b M. ``own`` holds the block of each row; None: there is only
        one block.

        In each pair, one direction is as close as the other is far. So the k closest are the better
        directions of the k pairs with the largest absolute values. Ties go to the lower pair, and
        within a pair to the first direction.
        """
        far = np.abs(along)
        least = self._least(far)
        closest = far >= least[:, None]
        for row in np.flatnonzero(_true_in_rows(closest) > self.closest):
            ties = np.flatnonzero(far[row] == least[row])
            closest[row, ties[self.closest - np.count_nonzero(closest[row]) :]] = False
        places = np.array([self.place(stream) for stream in streams], np.int64)
        found = self.categories(along, closest, np.minimum(places, self.frames.directions - 1))
        if own is not None:
            beyond = places - self.frames.directions  # places among the other blocks' directions
            block, rest = np.divmod(beyond, self.frames.directions)
            block += block >= own
            own = np.where(beyond < 0, own, block)
            found = own * self.frames.directions + np.where(beyond < 0, found, rest)
        return found.astype(_word(self.blocks * self.frames.directions))

    def _least(self, far: NDArray[np.floating]) -> NDArray[np.floating]:
        """Return the k-th largest number of each row, shape (n,), searching the likely range first.

        For random directions it nearly always lies between two public numbers, with few other
        numbers of the row between them. If it does not, the whole row is searched.
        """
        low, high = (far.dtype.type(each) for each in self._near_least)
        beyond, near = far >= high, far >= low
        near ^= beyond
        some, sizes = far.reshape(-1).take(np.flatnonzero(near)), _true_in_rows(near)
        ranks = sizes - self.closest + _true_in_rows(beyond)
        least, end = np.empty(len(far), far.dtype), 0
        for row, (rank, size) in enumerate(zip(ranks.tolist(), sizes.tolist(), strict=True)):
            among, end = some[end : end + size], end + size
            if not 0 <= rank < size:
                among, rank = far[row].copy(), far.shape[1] - self.closest
            among.partition(rank)
            least[row] = among[rank]
        return least

    @cached_property
    def _near_least(self) -> tuple[float, float]:
        """Two numbers that enclose the k-th largest, except in a few rows in a thousand."""
        k, pairs = self.closest, self.frames.pairs
        margin = 3 * math.sqrt(k * (1 - k / pairs)) + 3
        low = -float(special.ndtri(min(k + margin, pairs) / pairs / 2))
        high = -float(special.ndtri((k - margin) / pairs / 2)) if k > margin else math.inf
        return low * self.frames.size_along, high * self.frames.size_along

    def place(self, stream: Stream) -> int:
        """Return a random integer below M: each below k has weight H, all others have weight L."""
        window = self.window
        while (word := int(stream.integers(1, np.uint64)[0])) >= window.total:
            pass
        beyond = word - self.closest * window.high
        return word // window.high if beyond < 0 else self.closest + beyond // window.low

    def categories(
        self, along: NDArray[np.floating], closest: NDArray[np.bool_], places: NDArray[np.int64]
    ) -> NDArray[np.int64]:
        """Return the category at each place: 0 to k - 1 are the k closest, then come the others.

        Args:
            along: numbers of all pairs, shape (n, P B).
            closest: whether a pair holds one of the closest; true k times a row, shape (n, P B).
            places: from 0 to M - 1, one for each row, shape (n,).

        Returns:
            Shape (n,).
        """
        k, rows = self.closest, np.arange(len(places))
        among = places < 2 * k  # one of the closest, or its opposite
        opposite = np.where(among, places // k, places % 2)
        number = np.where(among, places % k, places // 2 - k)
        pairs = _places_of(closest == among[:, None], number)
        opposite ^= among & (along[rows, pairs] < 0)
        return 2 * pairs + opposite


def _places_of(rows: NDArray[np.bool_], numbers: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the index of the true value with the given number in each row, both from 0.

    Args:
        rows: shape (n, P B).
        numbers: shape (n,).
    """
    size = min(64, rows.shape[1] & -rows.shape[1])  # bits of the largest word that divides a row
    words = np.packbits(rows, axis=1).view(f"u{size // 8}")
    upto = np.bitwise_count(words).cumsum(1, dtype=np.uint32)
    found = _true_in_rows(upto <= numbers[:, None])
    each = np.arange(len(rows))
    before = upto[each, found - 1] * (found > 0)
    within = rows.reshape(len(rows), -1, size)[each, found].cumsum(1, dtype=np.uint8)
    places: NDArray[np.int64] = size * found + _true_in_rows(within <= (numbers - before)[:, None])
    return places


@dataclass(frozen=True)
class KClosest(Mechanism):
    """Clip x to an L2 norm of ``clip``, and report a public direction, likely one close to it.

    x/clip is completed to a unit vector u of d + 1 dimensions, and padded with zeros to P. A fresh
    public seed gives M directions (``Frames``). Each of the k directions with the largest inner
    products with u is drawn with weight H, every other direction with weight L: integers with H/L
    <= e^epsilon. Its number is sent with the seed. The direction with that number, times
    clip/scale, estimates x. M and k are chosen from ``epsilon`` and d, never from x.

    Guarantee: pure ln(H/L) <= ``epsilon`` for the whole report, replacing the whole input, exactly.
    Proof: the seed is drawn independently of the values, so it has the same probability for all of
    them. Given the seed, exactly k of the M categories have probability H/(k H + (M - k) L), and
    all others have L over the same total, whatever the values and the directions are. So a
    category's probability changes by a factor of at most H/L. The category is drawn by comparing
    uniform integers. Floats only decide which k categories have the larger weight, so no rounding,
    tie or bias of a direction can cost privacy.

    With ``blocks`` b > 1, x is b blocks of equal size. Only the longest block is reported, as one
    of b M categories: the k closest directions of that block have weight H, and all others, of
    every block, have L. The proof applies to b M categories of which k have the larger weight, so
    it also covers the choice of the block. Suppose that all of x is in one block, as for clients
    with one label. Then ten blocks of which the longest is reported have less noise than nine
    blocks reported as a whole if epsilon is at least 3, and more noise otherwise.

    Bias: the estimate would be unbiased if the directions were uniform on the sphere. S_k is their
    expected sum, corrected for the total norm of the inner products with a frame. Hadamard frames
    are uniform only to a close approximation. Measured with P = 2048 and epsilon 1 to 16, for x of
    one, two equal, two unequal, or four coordinates, flat, random, and with a few large
    coordinates: the slope of the mean along x is 1 within 0.3 %, and the part orthogonal to x is
    below 0.7 % of |x| up to epsilon 8 and 1.3 % at 16. None of these deviations exceeds 2.5
    standard errors of the measurement (benchmarks/results/2026-11-25-k-closest.md). So there is no
    further correction.

    Its mean squared error is 1.01 times the error of PrivUnit up to epsilon 8 (1.04 for 100
    coordinates), and 1.4 times at 16, where more frames help.

    Args:
        epsilon: the budget of the whole report, from 1e-6; at most 32 of it is used.
        clip: the largest L2 norm of a vector of normalised coordinates; positive.
        frames: B; None: the smallest number, up to 3, whose variance is within 1 % of the variance
            with the largest number. Time grows in proportion to B; more frames help if ``epsilon``
            is above 8.
        blocks: b, from 1; it must divide the number of coordinates.

    Raises:
        ConfigError: an argument is out of range.
    """

    name: ClassVar[str] = "k_closest"
    epsilon_unit: ClassVar[Literal["weight", "client-round"]] = "client-round"
    costly: ClassVar[bool] = True

    epsilon: float
    clip: float
    frames: int | None = None
    blocks: int = 1

    def __post_init__(self) -> None:
        check_between("epsilon", self.epsilon, SMALLEST_EPSILON, LARGEST_EPSILON)
        check_between("clip", self.clip, 1 / _LARGEST_CLIP, _LARGEST_CLIP)
        if self.blocks < 1:
            raise ConfigError(f"blocks = {self.blocks}: give 1 or more")
        if self.frames is not None:
            Frames(SMALLEST_DIMENSION, self.frames)

    @classmethod
    def from_settings(cls, settings: MechanismSettings) -> KClosest:
        """Return the mechanism of ``settings.epsilon`` for a report of ``settings.size``."""
        mechanism = cls(settings.epsilon, settings.clip, blocks=settings.blocks)
        mechanism.choice(settings.size)
        return mechanism

    def choice(self, size: int) -> FrameChoice:
        """Return directions, k and weights for ``size`` coordinates, the same for all clients.

        Raises:
            ConfigError: there are too many coordinates.
        """
        if size >= LARGEST_SIZE:
            raise ConfigError(
                f"a vector of {size} coordinates is too long for k_closest: use a model with "
                f"fewer than {LARGEST_SIZE} coordinates"
            )
        if size % self.blocks:
            raise ConfigError(
                f"blocks = {self.blocks}: give a divisor of {size}, the number of coordinates"
            )
        dimension = max(SMALLEST_DIMENSION, padded_size(size // self.blocks + 1))
        return _best_choice(min(self.epsilon, LARGEST_USED), dimension, self.frames, self.blocks)

    def event(self, size: int) -> PureReport:
        """Return the realised epsilon of the one category, ln(H/L)."""
        return PureReport(epsilon=self.choice(size).realised_epsilon)

    def category(self, size: int) -> SubsetResponse:
        """Return the weights of the one category, given its seed."""
        return self.choice(size).window.category()

    def encode(self, values: NDArray[np.floating], stream: Stream) -> bytes:
        """Return the 16-byte seed of the directions, and a direction's number in 2 or 4 bytes."""
        check_releasable(values)
        return bytes(KClosest.encode_many(self, values.reshape(1, -1), [stream])[0])

    def encode_many(
        self, values: NDArray[np.floating], streams: Sequence[Stream]
    ) -> NDArray[np.uint8]:
        """Return rows of reports, as ``encode`` makes them; see ``Mechanism.encode_many``."""
        check_block(values, streams)
        choice = self.choice(values.shape[1])
        frames, step = choice.frames, max(1, _BLOCK // choice.frames.dimension)
        room = frames.room(min(step, len(streams)))
        reports = []
        for start in range(0, len(streams), step):
            drawn = streams[start : start + step]
            some, own = self._longest(values[start : start + step])
            units = _units(some, self.clip)
            seeds = [stream.bytes(_SEED_BYTES).tobytes() for stream in drawn]
            categories = choice.draw(frames.along(units, seeds, room), drawn, own)
            reports += [
                seed + category.tobytes() for seed, category in zip(seeds, categories, strict=True)
            ]
        return np.frombuffer(b"".join(reports), np.uint8).reshape(len(streams), -1)

    def payload_bits(self, size: int) -> int:
        """Return the size of a seed and a number in bits: 144, or 160 beyond 65,536 categories."""
        return 8 * _report_bytes(self.blocks * self.choice(size).frames.directions)

    def aggregate(self, size: int) -> FrameSums:
        """Return an empty sum of reports of ``size`` coordinates."""
        choice = self.choice(size)
        return FrameSums(size, choice.frames, self.clip / choice.scale, self.blocks)

    def bound(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return the longest block of ``values``, scaled down to ``clip``, and zeros elsewhere."""
        if self.blocks == 1:
            return scaled_down(values, self.clip)
        some, own = self._longest(values[None])
        found = np.zeros((self.blocks, some.shape[1]))
        found[own] = scaled_down(some[0], self.clip)
        return found.ravel()

    def _longest(
        self, values: NDArray[np.floating]
    ) -> tuple[NDArray[np.floating], NDArray[np.int64] | None]:
        """Return the longest block of each row and its number; ties go to the first block."""
        if self.blocks == 1:
            return values, None
        split = values.reshape(len(values), self.blocks, -1)
        own = longest_blocks(split)
        return split[np.arange(len(split)), own], own

    def variance(self, values: NDArray[np.floating]) -> NDArray[np.float64]:
        """Return (clip/scale)^2 times the mean square of a reported coordinate, less x^2."""
        bounded, choice = self.bound(values), self.choice(values.size)
        square = choice.mean_square(bounded / self.clip)
        if self.blocks > 1:  # directions of other blocks never count as close
            size = values.size // self.blocks
            _, own = self._longest(values[None])
            others = np.repeat(np.arange(self.blocks) != own, size)
            square[others] = choice.frames.directions * choice.window.low / choice.window.total
        return (self.clip / choice.scale) ** 2 * square - bounded**2

    @classmethod
    def examples(cls) -> Sequence[KClosest]:
        """Return instances for the contract tests."""
        return [cls(1.0, 1.0), cls(0.01, 5.0), cls(12.0, 0.5), cls(40.0, 1000.0), cls(4.0, 1.0, 2)]


class FrameSums(SummedReports):
    """The sum of the directions that reports name; with the factor clip/scale it gives the mean.

    Sums are of whole numbers, so the order of reports does not matter. Some reports wait until they
    are decoded together; with the sum they take O(d) memory.
    """

    def __init__(self, size: int, frames: Frames, factor: float, blocks: int = 1) -> None:
        self._directions = blocks * frames.directions
        expected = _report_bytes(self._directions)
        super().__init__(np.zeros(size), expected, factor / frames.dimension)
        self._frames = frames
        self._blocks = blocks
        self._waiting: list[tuple[bytes, int]] = []
        self._most_waiting = max(1, _BLOCK // frames.dimension)

    def read(self, payload: bytes) -> None:
        """Add the direction that a report names.

        Raises:
            RunError: it names an unknown direction.
        """
        category = int.from_bytes(payload[_SEED_BYTES:], "little")
        if category >= self._directions:
            raise RunError(
                "a report names an unknown direction: client and server run different mechanisms"
            )
        self._waiting.append((payload[:_SEED_BYTES], category))
        if len(self._waiting) == self._most_waiting:
            self._decode()

    def scaled(self, reports: int) -> NDArray[np.float64]:
        """Return the estimate of the mean, given the number of reports."""
        self._decode()
        return super().scaled(reports)

    def _decode(self) -> None:
        if self._waiting:
            seeds, categories = zip(*self._waiting, strict=True)
            blocks, within = np.divmod(np.array(categories), self._frames.directions)
            size = self._sum.size // self._blocks
            rows = self._frames.rows(seeds, within, size)
            for block in np.unique(blocks):
                there = slice(block * size, (block + 1) * size)
                self._sum[there] += rows[blocks == block].sum(0, dtype=np.float64)
            self._waiting.clear()


def _word(categories: int) -> np.dtype[Any]:
    return np.dtype("<u2" if categories <= _TWO_BYTES else "<u4")


def _report_bytes(categories: int) -> int:
    return _SEED_BYTES + _word(categories).itemsize


def _units(values: NDArray[np.floating], clip: float) -> NDArray[np.float64]:
    """Return ``complete(scaled_down(row, clip)/clip)`` of each row, up to rounding: (n, d + 1)."""
    largest = np.maximum(values.max(1), -values.min(1)).astype(np.float64)
    whole = np.where(largest > 0, largest, 1)[:, None]
    parts = np.divide(values, whole, dtype=np.float64)  # so that no square overflows
    norms = np.sqrt(np.einsum("ij,ij->i", parts, parts))
    norms[norms == 0] = 1
    with np.errstate(over="ignore"):  # a warning would depend on the values
        kept = np.minimum(largest / clip, (1 - 2.0**-40) / norms)  # same slack as ``scaled_down``
    found = np.empty((len(values), values.shape[1] + 1))
    np.multiply(parts, kept[:, None], out=found[:, :-1])
    found[:, -1] = np.sqrt(np.maximum(0.0, 1 - (norms * kept) ** 2))
    return found


# Hadamard's matrix of order 8: entry (i, j) is -1 if i & j has an odd number of bits.
_LOW_ROWS = np.packbits([[(i & j).bit_count() & 1 for j in range(8)] for i in range(8)], axis=1)[
    :, 0
]
_SIGNS = 1.0 - 2.0 * np.unpackbits(np.arange(256, dtype=np.uint8)[:, None], axis=1)


_SIGNS_IN = {kind: _SIGNS.astype(kind) for kind in (np.dtype(np.float32), np.dtype(np.float64))}


def _unpacked(bits: NDArray[np.uint8], out: NDArray[Any]) -> NDArray[Any]:
    """Write 1 for each bit 0 and -1 for each bit 1 into ``out``, and return ``out``.

    Args:
        bits: packed, shape (n, P/8).
        out: contiguous, shape (n, P).
    """
    _SIGNS_IN[out.dtype].take(bits, axis=0, out=out.reshape(*bits.shape, 8), mode="clip")
    return out


# The number of directions, and how many of them count as close


@lru_cache(maxsize=256)
def _best_choice(epsilon: float, dimension: int, count: int | None, blocks: int) -> FrameChoice:
    """Return the best choice with ``count`` frames; if None, with the fewest that suffice.

    The fewest that suffice have a variance within 1 % of the variance with the most frames allowed,
    up to ``MOST_FRAMES``, whose categories fit two bytes; one frame is always allowed.
    """
    if count is not None:
        return _best_closest(epsilon, Frames(dimension, count), blocks)
    most = min(MOST_FRAMES, max(1, _TWO_BYTES // (2 * dimension * blocks)))
    choices = [
        _best_closest(epsilon, Frames(dimension, each), blocks) for each in range(1, most + 1)
    ]
    least = choices[-1].scale * math.sqrt(1 - _GAIN)
    return next(choice for choice in choices if choice.scale >= least)


def _best_closest(epsilon: float, frames: Frames, blocks: int) -> FrameChoice:
    """Return the choice of k with the least variance, total/((H - L) S_k) squared.

    In the limit of many directions, the least inner product q of the closest ones is then the norm
    of a report's expectation: q = (e^eps - 1) 2 f/((e^eps - 1) p + 2 b), for the density f and the
    share p of normal |z| > q, and b blocks. The search for the best k starts from there.
    """
    gain = math.expm1(epsilon)
    low, high = 0.0, 12.0
    for _ in range(60):
        q = (low + high) / 2
        share = math.erfc(q / math.sqrt(2))
        if q * (gain * share + 2 * blocks) < gain * 2 * _density(q):
            low = q
        else:
            high = q
    near = round(frames.pairs * math.erfc(low / math.sqrt(2)))
    tried = range(max(1, min(near - 4, frames.pairs)), min(near + 4, frames.pairs) + 1)
    return max(
        (FrameChoice(epsilon, frames, k, blocks) for k in tried), key=lambda choice: choice.scale
    )


_PLACES = np.linspace(-8, 8, 65)
_MASSES = np.exp(-(_PLACES**2) / 2) / math.sqrt(2 * math.pi) * (_PLACES[1] - _PLACES[0])


@lru_cache(maxsize=4096)
def _top_sum(frames: Frames, closest: int, power: Literal[1, 2]) -> float:
    """Return the expected sum of powers of the k largest inner products with a unit vector.

    Among N independent normal |z|, the k largest are independent above the next one, whose upper
    tail has the law Beta(k + 1, N - k). In a frame of P uniformly random orthogonal directions,
    their norm is sqrt(P) in total. Normal values would vary by a factor r_b in each frame, of mean
    square 1 and variance about 1/(2 P). The common effect of all factors is divided out exactly;
    the effect of their differences is subtracted to second order.
    """
    total, count = frames.pairs, frames.count
    if closest == total:
        normal, threshold = total * _mean_above(np.ones(1), np.zeros(1), power)[0], 0.0
    else:
        tails = special.betaincinv(closest + 1, total - closest, special.ndtr(_PLACES))
        thresholds = -special.ndtri(tails / 2)
        means = _mean_above(tails, thresholds, power)
        normal = closest * float((_MASSES * means).sum() / _MASSES.sum())
        threshold = -float(special.ndtri(closest / total / 2))
    differences = (count - 1) * threshold ** (power + 1) * 2 * _density(threshold) / 4 * power
    half = frames.dimension / 2
    alike = 1.0
    if power == 1:
        alike = math.exp(special.gammaln(half + 0.5) - special.gammaln(half)) / math.sqrt(half)
    return float((normal - differences) / alike)


def _mean_above(
    tails: NDArray[np.float64], thresholds: NDArray[np.float64], power: Literal[1, 2]
) -> NDArray[np.float64]:
    """Return the mean of |z|^power for normal z above thresholds with tail masses ``tails``."""
    density = 2 * np.exp(-(thresholds**2) / 2) / math.sqrt(2 * math.pi)
    return density / tails if power == 1 else 1 + thresholds * density / tails


def _density(z: float) -> float:
    return math.exp(-z * z / 2) / math.sqrt(2 * math.pi)
