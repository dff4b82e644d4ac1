"""Facts: what a statement, a score or a status says, as a kind and values, never as a sentence.

Whatever is decided, compared, signed or kept is decided by kinds and values. ``reporting.words`` is
the only place where a fact becomes a sentence, and may choose other words in any release.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import UnionType
from typing import Any, Generic, Self, TypeVar, cast, get_args, get_origin

from fedldp.core.errors import ConfigError

Value = Any
"""None, a bool, an int, a float, a string, a fact, or a tuple of these."""


@dataclass(frozen=True)
class Fact:
    """A kind and its values. Two facts of a family are equal if both are equal.

    Attributes:
        kind: the name of the kind, in kebab case.
        pairs: the values by name, sorted by name.
    """

    kind: str
    pairs: tuple[tuple[str, Value], ...] = ()

    @property
    def values(self) -> dict[str, Value]:
        """The values by name."""
        return dict(self.pairs)

    @property
    def is_known(self) -> bool:
        """Whether this version of fedldp knows the kind."""
        return self.kind in KINDS

    def to_json(self) -> dict[str, Any]:
        """Return the fact as JSON holds it, without any words."""
        return {"kind": self.kind, "values": {name: _plain(value) for name, value in self.pairs}}

    @classmethod
    def from_json(cls, found: object) -> Self:
        """Return the fact that JSON holds. An unknown kind, of a newer version, is kept as it is.

        Raises:
            ConfigError: it is no fact of this family, or a known kind has other values.
        """
        if not isinstance(found, Mapping) or not isinstance(found.get("kind"), str):
            raise ConfigError(f"{found!r}: this is no {cls.__name__}, which has a kind and values")
        values = found.get("values")
        if not isinstance(values, Mapping):
            raise ConfigError(f"{found['kind']}: its values are missing")
        known = KINDS.get(found["kind"])
        fields = {} if known is None else known.fields
        read = {str(name): _read(value, fields.get(name)) for name, value in values.items()}
        if known is None:
            return cls(found["kind"], tuple(sorted(read.items())))
        if known.family is not cls and cls is not Fact:
            raise ConfigError(f"{found['kind']}: this kind is no {cls.__name__}")
        return cast(Self, known(**read))


class Assumption(Fact):
    """What a guarantee relies on. An unknown one weakens, so what decides refuses it."""


class Method(Fact):
    """How a proven number was computed."""


class NoGuarantee(Fact):
    """Why nothing is proven."""


class Unprotected(Fact):
    """Something that leaves a client unprotected."""


class Caveat(Fact):
    """What a reader of a statement, or of several, must know besides its lines."""


class Doubt(Fact):
    """Why a score may say less than it seems."""


class Note(Fact):
    """What a reader of several runs, or of their scores, must know."""


class Status(Fact):
    """What needs the attention of a server's or a site's operator."""


F = TypeVar("F", bound=Fact)


@dataclass(frozen=True)
class Kind(Generic[F]):
    """A kind of fact, declared once; called with its values, it makes a fact.

    Attributes:
        name: the name in kebab case; each name stands for one kind, whatever its family.
        family: the class of its facts.
        fields: the type of each value: a type, a union, or ``tuple[T, ...]``.
        binds: whether an agreement holds facts of this kind, for a caveat.

    Raises:
        ConfigError: when called: a value is missing, unknown, or not exactly of its type. A number
            is a plain int or float, never a bool or a numpy scalar.
    """

    name: str
    family: type[F]
    fields: Mapping[str, Any]
    binds: bool = True

    def __post_init__(self) -> None:
        known: Kind[Any] = self
        if KINDS.setdefault(self.name, known) is not self:
            raise ValueError(f"two kinds have the name {self.name}")

    def __hash__(self) -> int:
        return hash(self.name)

    def __call__(self, **values: Value) -> F:
        if values.keys() != self.fields.keys():
            raise ConfigError(
                f"{self.name}: it has the values {', '.join(self.fields) or 'none'}, not "
                f"{', '.join(values) or 'none'}"
            )
        for name, value in values.items():
            if not _fits(value, self.fields[name]):
                raise ConfigError(f"{self.name}: {name} = {value!r}: this is not of its type")
        return self.family(self.name, tuple(sorted(values.items())))

    def among(self, facts: Iterable[Fact]) -> list[F]:
        """Return the facts of this kind."""
        return [cast(F, fact) for fact in facts if fact.kind == self.name]

    def is_in(self, facts: Iterable[Fact]) -> bool:
        """Return whether a fact of this kind is among ``facts``."""
        return any(fact.kind == self.name for fact in facts)


KINDS: dict[str, Kind[Fact]] = {}
"""All declared kinds by name: those of ``kinds``, and those of papers whose modules are loaded."""


def in_order(facts: Iterable[F]) -> list[F]:
    """Return facts in the order of every output: as kinds are declared, then by values."""
    places = {name: place for place, name in enumerate(KINDS)}
    return sorted(
        facts, key=lambda each: (places.get(each.kind, len(places)), each.kind, repr(each.pairs))
    )


def alike(one: object, other: object) -> bool:
    """Return whether two values are equal, floats up to a relative 1e-6.

    Two machines may compute the last digits of a number differently.
    """
    if isinstance(one, float) and isinstance(other, float):
        return math.isclose(one, other, rel_tol=1e-6)
    if isinstance(one, Fact) and isinstance(other, Fact):
        return one.kind == other.kind and alike(one.values, other.values)
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        return one.keys() == other.keys() and all(alike(one[name], other[name]) for name in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(alike, one, other))
    return type(one) is type(other) and one == other


def _plain(value: Value) -> Any:
    if isinstance(value, Fact):
        return value.to_json()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def _read(value: Any, wanted: Any) -> Value:
    """Return a value that JSON holds; a nested fact is of the family that its field has."""
    if isinstance(value, Mapping):
        is_fact = isinstance(wanted, type) and issubclass(wanted, Fact)
        return (wanted if is_fact else Fact).from_json(value)
    if isinstance(value, list | tuple):
        of = get_args(wanted)[0] if get_origin(wanted) is tuple else None
        return tuple(_read(each, of) for each in value)
    return value


def _fits(value: Value, wanted: Any) -> bool:
    if isinstance(wanted, UnionType):
        return any(_fits(value, each) for each in get_args(wanted))
    if get_origin(wanted) is tuple:
        return type(value) is tuple and all(_fits(each, get_args(wanted)[0]) for each in value)
    return type(value) is wanted
