"""A table means the same as .csv, in every dialect, and as .parquet, in every type of Arrow."""

from __future__ import annotations

import csv
import decimal
import tempfile
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from unlabelled import load_features

from fedldp.core.errors import DataError
from fedldp.data import Columns, Dataset, load_dataset
from fedldp.data.columns import value
from fedldp.data.custom import encode_examples
from fedldp.data.encoding import encode
from fedldp.data.tables import read_table

arrow = pytest.importorskip("pyarrow")
parquet = pytest.importorskip("pyarrow.parquet")

DIALECTS: tuple[dict[str, Any], ...] = (
    {"delimiter": ","},
    {"delimiter": ";"},
    {"delimiter": "\t"},
    {"delimiter": ";", "comma": True},
    {"delimiter": ",", "encoding": "utf-8-sig"},
    {"delimiter": ";", "comma": True, "encoding": "utf-8-sig", "lineterminator": "\r\n"},
    {"delimiter": ",", "quoting": csv.QUOTE_ALL, "lineterminator": "\r\n"},
)
CATEGORIES = {
    "dose": ("0.1", "2.5", "1e-05"),
    "code": ("1", "2", "007", "unknown"),
    "unit": ("m²", "m2", "Zoë", "true"),
    "flag": ("true", "false"),
}
COLUMNS = Columns(
    client="site",
    person="patient",
    categories=CATEGORIES,
    filled={"code": "unknown", "age": 50.0},
    scaled={"age": (0.0, 100.0)},
    persons_at_sites=99,
)
CELLS: dict[str, Callable[[Random], Any]] = {
    "site": lambda draw: 2**60 + draw.randrange(4),
    "patient": lambda draw: draw.choice(["Müller", "Zoë", "Ann", "ann", "12", "007", "³"]),
    "dose": lambda draw: draw.choice([0.1, 2.5, 1e-05]),
    "code": lambda draw: draw.choice([1.0, 2.0, None]),
    "unit": lambda draw: draw.choice(["m²", "m2", "Zoë", "true"]),
    "flag": lambda draw: draw.choice([False, True]),
    "age": lambda draw: draw.choice([draw.randrange(-9, 150), 2**53 + 1, -(2**62), None]),
    "weight": lambda draw: float(np.float32(draw.gauss(0, 1) * 10 ** draw.randrange(-9, 9))),
    "label": lambda draw: draw.randrange(4),
}
TYPES: dict[str, tuple[Any, ...]] = {
    "site": (arrow.int64(), arrow.uint64(), arrow.decimal128(30), arrow.string()),
    "patient": (arrow.string(), arrow.large_string()),
    "dose": (arrow.float64(), arrow.float32(), arrow.decimal128(10, 6), arrow.string()),
    "code": (arrow.float64(), arrow.float32(), arrow.int8(), arrow.decimal128(4, 2)),
    "unit": (arrow.string(), arrow.large_string()),
    "flag": (arrow.bool_(), arrow.string(), arrow.int8(), arrow.float64()),
    "age": (arrow.int64(), arrow.decimal128(25)),
    "weight": (arrow.float64(), arrow.float32()),
    "label": (arrow.int8(), arrow.uint8(), arrow.int16(), arrow.uint16(), arrow.int32(),
              arrow.uint32(), arrow.int64(), arrow.uint64(), arrow.float64(), arrow.string(),
              arrow.decimal128(3, 1)),
}  # fmt: skip

Rows = Sequence[Mapping[str, Any]]


def as_text(cell: Any, comma: bool, draw: Callable[[Sequence[Any]], Any]) -> str:
    """Return a cell as one of the programs that people use writes it."""
    if cell is None:
        return draw(["", "NA", "nan"])
    if isinstance(cell, bool):
        return draw([str(cell), str(cell).lower(), str(int(cell))])
    if isinstance(cell, int) and abs(cell) < 2**53:
        cell = draw([str(cell), f"{cell}.0"])
    elif isinstance(cell, float):
        cell = draw([repr(cell), f"{cell:.17g}"])
    elif isinstance(cell, str):
        return unicodedata.normalize(draw(["NFC", "NFD"]), cell) + draw(["", " ", "\u200b"])
    return str(cell).replace(".", ",") if comma else str(cell)


def write_csv(path: Path, rows: Rows, draw: Callable[[Sequence[Any]], Any], dialect: Any) -> None:
    form = dict(dialect)
    comma = form.pop("comma", False)
    with path.open("w", newline="", encoding=form.pop("encoding", "utf-8")) as file:
        writer = csv.writer(file, **{"lineterminator": "\n", **form})
        writer.writerow(rows[0])
        for row in rows:
            writer.writerow([as_text(each, comma, draw) for each in row.values()])


def as_arrow(name: str, cells: Sequence[Any], kind: Any, encoded: bool) -> Any:
    if arrow.types.is_string(kind) and name not in ("patient", "unit"):
        cells = [None if each is None else str(each) for each in cells]
    elif arrow.types.is_decimal(kind):
        cells = [None if each is None else decimal.Decimal(str(each)) for each in cells]
    elif name == "flag" and not arrow.types.is_boolean(kind):
        cells = [int(each) for each in cells]
    found = arrow.array(cells, kind)
    return found.dictionary_encode() if encoded else found


@pytest.mark.slow
@given(
    seed=st.integers(0, 2**32 - 1),
    dialect=st.sampled_from(DIALECTS),
    kinds=st.fixed_dictionaries({name: st.sampled_from(each) for name, each in TYPES.items()}),
)
def test_a_table_is_read_alike_from_every_kind_of_file(
    seed: int, dialect: dict[str, Any], kinds: dict[str, Any]
) -> None:
    draw = Random(seed)
    rows = [{name: cell(draw) for name, cell in CELLS.items()} for _ in range(20)]
    columns = {
        name: as_arrow(name, [row[name] for row in rows], kinds[name], draw.choice([False, True]))
        for name in CELLS
    }
    with tempfile.TemporaryDirectory() as folder:
        one, other = Path(folder, "t.csv"), Path(folder, "t.parquet")
        write_csv(one, rows, draw.choice, dialect)
        parquet.write_table(arrow.table(columns), other)
        tables = [read_table(each) for each in (one, other)]
        desk = [encode(each, COLUMNS) for each in tables]
        site = [encode_examples(each, COLUMNS_AT_SITE, leave_out=True) for each in tables]
    np.testing.assert_array_equal(desk[0].features, desk[1].features)
    for name in ("clients", "people"):
        assert getattr(desk[0], name) == getattr(desk[1], name)
    assert list(map(value, desk[0].labels)) == list(map(value, desk[1].labels))
    assert len(set(desk[0].clients or ())) == len({row["site"] for row in rows})
    patients = {unicodedata.normalize("NFKC", row["patient"]) for row in rows}
    assert set(desk[0].people or ()) == patients
    for each in site:
        np.testing.assert_array_equal(each.features, desk[0].features)
        assert each.labels.tolist() == [row["label"] for row in rows]
        assert each.people is not None
        assert each.people.tolist() == [sorted(patients).index(name) for name in desk[0].people]


COLUMNS_AT_SITE = Columns(
    person="patient",
    ignored=("site",),
    categories=CATEGORIES,
    filled=COLUMNS.filled,
    scaled=COLUMNS.scaled,
)


def write(folder: Path, text: str, name: str = "t.csv") -> Path:
    path = folder / name
    path.write_text(text, encoding="utf-8")
    return path


def parquet_of(folder: Path, **columns: Any) -> Path:
    path = folder / "t.parquet"
    parquet.write_table(arrow.table(columns), path)
    return path


def test_floats_name_nobody_once_they_may_have_lost_digits(tmp_path: Path) -> None:
    columns = Columns(client="site", person="who", persons_at_sites=9)
    label, age = [0, 1] * 10, [i // 2 for i in range(20)]
    whole = [float(i % 4) for i in range(20)]
    path = parquet_of(tmp_path, site=whole, who=list(range(20)), age=age, label=label)
    assert len(load_dataset(str(path), columns=columns).clients or ()) == 4
    for bad in (2.0**60, 1.5):
        for name in ("site", "who"):
            cells = {"site": whole, "who": whole, name: [bad, *whole[1:]]}
            path = parquet_of(tmp_path, **cells, age=age, label=label)
            rows = zip(cells["site"], cells["who"], age, label, strict=True)
            text = "site,who,age,label\n" + "".join(",".join(map(repr, row)) + "\n" for row in rows)
            for each in (path, write(tmp_path, text)):
                with pytest.raises(DataError, match=f"column '{name}' .*lost digits") as found:
                    load_dataset(str(each), columns=columns)
                assert "1.5" not in str(found.value)
    # A site leaves out such a row, whatever its other rows are.
    agreed = Columns(person="who", ignored=("site",))
    assert len(encode_examples(read_table(path), agreed, leave_out=True)) == 19


@pytest.mark.parametrize("role", ["client", "person", "label", "category", "number"])
def test_types_without_one_text_are_refused_by_name(tmp_path: Path, role: str) -> None:
    days = arrow.array(range(20), arrow.date32())
    path = parquet_of(tmp_path, day=days, age=[1, 2, 2, 3] * 5, label=[0, 1] * 10)
    columns = {
        "client": Columns(client="day"),
        "person": Columns(person="day"),
        "label": Columns(label="day", ignored=("label",)),
        "category": Columns(categories={"day": ("1970-01-01",)}),
        "number": Columns(),
    }[role]
    with pytest.raises(DataError, match=r"column 'day' is of Arrow's type date32\[day\]"):
        load_dataset(str(path), columns=columns)
    assert load_dataset(str(path), columns=Columns(ignored=("day",))).features == ("age",)


@pytest.mark.parametrize(
    ("labels", "classes"),
    [(["1.0", "0.0"], None), (["1", "0.0"], None), (["True", "false"], ("false", "true")),
     (["ill", "ill\u200b", "we\u0308ll"], ("ill", "wëll"))],
)  # fmt: skip
def test_labels_have_one_spelling(
    tmp_path: Path, labels: list[str], classes: tuple[str, ...] | None
) -> None:
    rows = "".join(f"{i // 2},{labels[i % len(labels)]}\n" for i in range(60))
    data = load_dataset(str(write(tmp_path, "age,label\n" + rows)))
    assert (data.num_classes, data.classes) == (2, classes)


def test_a_declared_class_is_no_missing_value_however_it_is_spelled(tmp_path: Path) -> None:
    given_, classes = ["NA", " NA", "N\u200bA", "b"] * 2, ("NA", "b")
    path = write(tmp_path, "age,label\n" + "".join(f"1,{each}\n" for each in given_))
    of_table = encode_examples(read_table(path), Columns(classes=classes))
    of_arrays = Dataset.from_arrays([[1.0]] * 8, given_, classes=classes, test_share=0).train
    assert of_table.labels.tolist() == of_arrays.labels.tolist() == [0, 0, 0, 1] * 2


def test_labels_that_are_not_integers_are_left_out_row_by_row(tmp_path: Path) -> None:
    given_ = ["1.0", "0", "2,0", "1_0", "٣", "-1", "x", "", "1" * 30, "1e+00"]
    path = write(tmp_path, "age;label\n" + "".join(f"1;{each}\n" for each in given_))
    found = encode_examples(read_table(path), Columns(), leave_out=True)
    assert found.labels.tolist() == [1, 0, 2, 1]


# European files


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("age;x\n1,5;2\n", [[1.5, 2]]),
        ("age\tx\n1.5\t2\n", [[1.5, 2]]),
        ('"age, years";x\n-1,5e-3;2\n', [[-0.0015, 2]]),
        ('"dose (mg;ml)",x\n1.5,2\n', [[1.5, 2]]),
        ("age;x\n1.5;2\n", [[1.5, 2]]),
        ("age\n1.5\n", [[1.5]]),
    ],
)
def test_the_header_says_what_separates_cells(
    tmp_path: Path, text: str, expected: list[list[float]]
) -> None:
    found = load_features(write(tmp_path, text), columns=Columns())
    np.testing.assert_array_equal(found, np.array(expected, np.float32))


def test_what_a_row_means_at_a_site_does_not_depend_on_other_rows(tmp_path: Path) -> None:
    rows = ["1,5;a;1", "1.234;b;0", "1.234,5;c;1", "x;d;0", "2;e;1", "3;1.5;1", ";f;0"]
    agreed = Columns(person="who")

    def read(rows: Sequence[str]) -> list[list[float]]:
        path = write(tmp_path, "age;who;label\n" + "".join(f"{each}\n" for each in rows))
        found = encode_examples(read_table(path), agreed, leave_out=True)
        return np.column_stack([found.features, found.labels]).tolist()

    assert read(rows) == [each for row in rows for each in read([row])]


def test_rows_that_are_left_out_are_counted_by_column(tmp_path: Path) -> None:
    path = write(tmp_path, "age,sex,who,label\n1,f,a,0\n,f,b,1\n2,x,,1\n3,m,c,y\nz,x,d,1\n")
    agreed = Columns(person="who", categories={"sex": ("f", "m")})
    found = encode(read_table(path), agreed, leave_out=True)
    assert len(found.labels) == 1
    counts = {name: rows.sum() for name, rows in found.bad.items() if rows.any()}
    assert counts == {"age": 2, "sex": 2, "who": 1, "label": 1}
