"""One value has one meaning, and one person one spelling."""

from __future__ import annotations

import logging
import math
import unicodedata
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from fedldp.core.errors import DataError
from fedldp.data import Dataset
from fedldp.data.columns import identity, numbers, places_in, value

TEXTS = st.text(max_size=8)
UNSEEN = ["\u200b", "\u200d", "\u202e", "\u2066", "\ufeff", "\u00ad", "\0", "\ufe0f", "\u034f"]
NAMES = st.text(st.characters(categories=["L", "Nd", "Zs"]), min_size=1, max_size=8)


@given(TEXTS)
@example("u\u034f\u0308")
@example("\u00a8x")
@example("-0")
@example("1e+400")
def test_a_spelling_is_its_own_spelling(text: str) -> None:
    assert value(value(text)) == value(text)
    name = identity(text)
    assert name is None or identity(name) == name


@given(
    NAMES,
    st.sampled_from(["NFC", "NFD", "NFKC", "NFKD"]),
    st.sampled_from([*UNSEEN, " ", "\u00a0"]),
    st.integers(0, 8),
)
@example("Müller", "NFD", "\u200b", 3)
def test_names_that_look_equal_are_one(name: str, form: Any, unseen: str, place: int) -> None:
    other = unicodedata.normalize(form, name)
    assert identity(f" {other}\t") == identity(name)
    if not unseen.isspace():
        assert identity(name[:place] + unseen + name[place:]) == identity(name)
    if form in ("NFC", "NFD"):
        assert value(f"{unseen}{other}{unseen}") == value(name)


def test_public_values_that_mean_different_things_stay_different() -> None:
    assert value("m²") != value("m2")
    assert identity("m²") == identity("m2")
    place = places_in(("m²", "m2"))
    assert [place("m²"), place("m2")] == [0, 1]


@given(st.integers(-(2**70), 2**70))
@example(2**60 + 1)
def test_integers_are_exact(number: int) -> None:
    assert identity(str(number)) == value(str(number)) == str(number)


@pytest.mark.parametrize(
    "text", ["1.5", "1,5", f"{2**53}.0", "1.15292E+18", "1e+05", "1.23457E+11", "-1e-05"]
)
def test_numbers_that_may_have_lost_digits_name_nobody(text: str) -> None:
    assert identity(text) is None


@given(st.floats(allow_nan=False, allow_infinity=False))
@example(0.1)
@example(-0.0)
@example(1e15)
def test_equal_floats_are_one_public_value(number: float) -> None:
    place = places_in((repr(number), "other"))
    for text in (repr(number), f"{number:.17e}", repr(number).replace(".", ",")):
        assert place(text) == 0
    assert place(repr(math.nextafter(number, math.inf))) == -1


def test_truth_values_are_found_only_in_a_list_of_truth_values() -> None:
    place = places_in(("True", "False", "unknown"))
    assert [place(text) for text in ("true", "TRUE", "1", "1.0")] == [0] * 4
    assert [place(text) for text in ("false", "0", "0.0", "unknown")] == [1, 1, 1, 2]
    assert places_in(("1", "0"))("True") == -1
    assert places_in(("true", "other"))("True") == 0
    assert places_in(("true", "other"))("1") == -1
    assert places_in(("true", "false", "1"))("1") == 2


@given(st.lists(TEXTS | st.floats().map(repr) | st.integers().map(str), max_size=5), st.booleans())
@example(["1_08"], False)
@example(["3\0"], False)
@example(["٣"], False)
@example(["1,5", "2"], True)
def test_only_ascii_digits_make_a_number(texts: list[str], comma: bool) -> None:
    """The fast path for whole columns agrees with one cell at a time."""
    found = numbers(texts, comma=comma)
    alone = [numbers([text, "x"], comma=comma)[0] for text in texts]
    np.testing.assert_array_equal(found, np.array(alone))
    allowed = set("0123456789+-.eE, infatyINFATY\t\n\r\x0b\x0c\x1c\x1d\x1e\x1f")
    for text, number in zip(texts, found, strict=True):
        if not np.isnan(number) and text.strip().lower() not in ("true", "false"):
            assert set(text.strip()) <= allowed
            assert float(text.replace(",", ".")) == number
    if not comma:
        floats = [text for text in texts if "," in text]
        assert np.isnan(numbers(floats)).all()


# Persons and clients in arrays


def test_two_spellings_of_a_person_in_arrays_are_one_person(
    caplog: pytest.LogCaptureFixture,
) -> None:
    people = [f"Zoë {row // 2}" for row in range(40)]
    groups = [unicodedata.normalize("NFD" if row % 2 else "NFC", each)
              for row, each in enumerate(people)]  # fmt: skip
    features, labels = np.zeros((40, 1)), np.arange(40) // 2 % 2
    for given_ in (groups, np.array(groups), np.array(groups, object)):
        caplog.clear()
        data = Dataset.from_arrays(features, labels, groups=given_)
        assert data.num_people == 16
        assert "40 spellings" in caplog.text
        assert "20 persons" in caplog.text
        assert "Zo" not in caplog.text
    clients = [f"{name}\u200b" if row % 2 else name for row, name in enumerate(people)]
    data = Dataset.from_arrays(features, labels, clients=clients, test_share=0)
    assert len(data.clients or ()) == 20
    with pytest.raises(DataError, match="1 person is in the training and in the test set"):
        Dataset.from_arrays(
            [[0.0], [1.0]],
            [0, 1],
            groups=["Zoë", "b"],
            test=([[0.0], [1.0]], [0, 1], [unicodedata.normalize("NFD", "Zoë"), "c"]),
        )


@pytest.mark.parametrize("kinds", [(np.int64, np.uint64), (np.uint64, np.int64), (np.int64, str)])
def test_identifiers_in_two_arrays_never_pass_through_floats(kinds: tuple[Any, Any]) -> None:
    first, second = kinds
    features, labels = [[0.0], [1.0]], [0, 1]

    def people(start: int) -> int | None:
        here = np.array([2**60, 2**60 + 1], first)
        there = np.array([start, start + 1], np.int64).astype(second)
        data = Dataset.from_arrays(features, labels, groups=here, test=(features, labels, there))
        return data.num_people

    assert people(2**60 + 2) == 2
    with pytest.raises(DataError, match="1 person is in"):
        people(2**60 + 1)


def test_identifiers_may_be_objects() -> None:
    features, labels = [[0.0], [1.0], [2.0]], [0, 1, 1]
    whole = np.array([2**60, np.int64(2**60 + 1), "a"], object)
    assert Dataset.from_arrays(features, labels, groups=whole, test_share=0).num_people == 3


def test_names_that_differ_only_in_case_stay_apart_and_are_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    groups = ["Ann", "ann", "ANN", "Bob"]
    data = Dataset.from_arrays([[0.0]] * 4, [0, 1, 0, 1], groups=groups, test_share=0)
    assert data.num_people == 4
    with caplog.at_level(logging.WARNING):
        assert "3 persons differ from each other only in upper and lower case" in caplog.text
    assert "ann" not in caplog.text.lower().replace("and", "")
