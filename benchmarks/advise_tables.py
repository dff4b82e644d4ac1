"""Writes the tables on which `fedldp advise` was tried: visits, lengths of stay, breast cancer.

    python -m benchmarks.advise_tables FOLDER
    cd FOLDER && fedldp advise visits.toml && fedldp advise stays.toml && fedldp advise cancer.toml

The visits belong to 2,700 invented patients at five hospitals, which differ in size and in their
patients' age and health; 14 % are readmitted, a patient has 1 to 5 visits, and some values are
missing (``raw.csv``). In ``visits.csv`` public values replace missing ones, and further columns say
where. The lengths of stay in days are those of 12,000 invented patients, who are dealt to five
hospitals at random; see ``table_rule.made``. The 569 people of the breast cancer table, which comes
with scikit-learn, are dealt to five sites at random.
"""

from __future__ import annotations

import argparse
import csv
import math
import random
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.table_rule.made import facts_of, stays

SITES = {
    "north": (900, 52, -0.3), "south": (700, 61, 0.1), "west": (500, 44, -0.5),
    "east": (350, 70, 0.5), "centre": (250, 57, 0.0),
}  # fmt: skip
"""Patients, mean age and shift of the log odds of each hospital."""

COLUMNS = ("patient", "hospital", "age", "sex", "pressure", "bmi", "creatinine", "smoking",
           "diabetes", "visit", "readmitted")  # fmt: skip
FILLED = {"pressure": 130, "bmi": 26}
"""Public values in place of missing ones: typical of healthy people, not computed from the
table."""

PEOPLE = 12_000
STAY_NUMBERS = ("age", "pressure", "creatinine", "haemoglobin", "bmi", "lactate", "before",
                "illness", "drugs", "no_lactate")  # fmt: skip
STAY_STRINGS = ("sex", "smoking", "diagnosis", "admission", "ward")

VISITS = """dataset = "visits.csv"
label_column = "readmitted"
classes = ["no", "yes"]
client_column = "hospital"
person_column = "patient"
ignore_columns = ["visit"]

[scale_columns]
age = [0, 120]
pressure = [60, 220]
bmi = [10, 60]
creatinine = [0, 5]

[categories]
sex = ["f", "m"]
smoking = ["never", "former", "current", "unknown"]
"""


def visits() -> Iterable[dict[str, Any]]:
    """Yield the visits, with missing values; the same ones in every run."""
    draw = random.Random(7)
    number = 0
    for site, (patients, age_there, shift) in SITES.items():
        for _ in range(patients):
            number += 1
            age = min(99, max(18, draw.gauss(age_there, 16)))
            sex = draw.choice("fm")
            weights = [5, 3, 2 + 2 * (site == "west")]
            smoking = draw.choices(["never", "former", "current"], weights)[0]
            diabetes = int(draw.random() < 0.08 + 0.0025 * (age - 18))
            frailty = draw.gauss(0, 0.6)
            for visit in range(1, draw.choice([1, 1, 2, 2, 3, 4, 5]) + 1):
                pressure = draw.gauss(118 + 0.35 * age + 6 * frailty, 15)
                bmi = draw.gauss(26 + 2 * diabetes, 4.2)
                creatinine = math.exp(
                    draw.gauss(-0.15 + 0.006 * (age - 50) + 0.25 * frailty + 0.25 * diabetes, 0.3)
                )
                risk = (
                    -2.88 + shift + 0.045 * (age - 55) + 0.022 * (pressure - 135)
                    + 0.9 * diabetes + 1.1 * (creatinine - 1) + 0.6 * (smoking == "current")
                    + 0.6 * frailty + 0.02 * (bmi - 26)
                )  # fmt: skip
                ill = draw.random() < 1 / (1 + math.exp(-risk))
                known = draw.random() > 0.08 + 0.1 * (site == "south")
                cells = (
                    f"p{number}", site, round(age), sex,
                    round(pressure, 1) if known else "",
                    round(bmi, 1) if draw.random() > 0.05 else "NA",
                    round(creatinine, 2),
                    smoking if draw.random() > 0.06 else "",
                    diabetes, visit, "yes" if ill else "no",
                )  # fmt: skip
                yield dict(zip(COLUMNS, cells, strict=True))


def filled(row: dict[str, Any]) -> dict[str, Any]:
    """Return a visit with public values in place of missing ones, and columns that say where."""
    missing = {column: row[column] in ("", "NA") for column in FILLED}
    found = row | {column: FILLED[column] for column in FILLED if missing[column]}
    found["smoking"] = row["smoking"] or "unknown"
    return found | {f"{column}_missing": int(gap) for column, gap in missing.items()}


def write_cancer(folder: Path) -> None:
    """Write the breast cancer table; its ranges are those of ``benchmarks.people``."""
    from sklearn.datasets import load_breast_cancer

    from benchmarks.people import CENTRE, MOST

    table = load_breast_cancer()
    names = [name.replace(" ", "_") for name in table.feature_names]
    most = [sizes[kind] for kind in range(3) for sizes in MOST.values()]
    sites = np.random.default_rng(0).permutation(len(table.target)) % 5
    rows = [
        {"patient": f"p{number}", "site": f"s{sites[number]}",
         **dict(zip(names, values, strict=True)), "benign": label}
        for number, (values, label) in enumerate(zip(table.data, table.target, strict=True))
    ]  # fmt: skip
    write(folder / "cancer.csv", rows)
    lines = [
        'dataset = "cancer.csv"', 'label_column = "benign"', 'client_column = "site"',
        'person_column = "patient"', "", "[scale_columns]",
        *(f"{name} = [0, {high}]" for name, high in zip(names, most, strict=True)),
        "", "[centre_columns]",
        *(f"{name} = {CENTRE * high:.6g}" for name, high in zip(names, most, strict=True)),
    ]  # fmt: skip
    (folder / "cancer.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_stays(folder: Path) -> None:
    """Write the table of lengths of stay, with declarations that are a little wrong."""
    table, days = stays(PEOPLE, 1)
    facts = facts_of(stays(10_000, 1 << 20)[0].numbers)
    patients = table.people
    assert patients is not None
    sites = np.random.default_rng(0).integers(0, 5, PEOPLE)[patients]
    rows = [
        {
            "patient": f"p{patients[row]}",
            "hospital": f"h{sites[row]}",
            **dict(zip(STAY_NUMBERS, table.numbers[row].round(3).tolist(), strict=True)),
            **{
                name: f"{name[0]}{code}"
                for name, code in zip(STAY_STRINGS, table.codes[row].tolist(), strict=True)
            },
            "days": days[row],
        }
        for row in range(len(days))
    ]
    write(folder / "stays.csv", rows)
    spreads = zip(STAY_NUMBERS, facts.typical, facts.spread, strict=True)
    lines = [
        'dataset = "stays.csv"', 'label_column = "days"', "label_range = [0, 30]",
        "label_typical = 4", 'client_column = "hospital"', 'person_column = "patient"', "",
        "[spread_columns]", *(f"{name} = [{at:.4g}, {by:.3g}]" for name, at, by in spreads), "",
        "[categories]",
        *(
            f"{name} = {[f'{name[0]}{code}' for code in range(many)]}"
            for name, many in zip(STAY_STRINGS, table.levels, strict=True)
        ),
    ]  # fmt: skip
    (folder / "stays.toml").write_text("\n".join(lines) + "\n", encoding="utf-8")


def write(path: Path, rows: Sequence[dict[str, Any]]) -> None:
    """Write rows as a table."""
    with path.open("w", newline="", encoding="utf-8") as out:
        table = csv.DictWriter(out, list(rows[0]))
        table.writeheader()
        table.writerows(rows)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.advise_tables", description=__doc__)
    parser.add_argument("folder", type=Path, help="where to write the tables")
    folder = parser.parse_args().folder
    folder.mkdir(parents=True, exist_ok=True)
    rows = list(visits())
    write(folder / "raw.csv", rows)
    write(folder / "visits.csv", [filled(row) for row in rows])
    (folder / "visits.toml").write_text(VISITS, encoding="utf-8")
    write_stays(folder)
    write_cancer(folder)


if __name__ == "__main__":
    main()
