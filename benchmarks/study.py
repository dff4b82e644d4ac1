"""Makes tables and sentences of the study's pages and the README from study/results.

    for file in study/*.toml; do
        fedldp compare $file --out study/results/$(basename $file .toml)
    done
    python -m benchmarks.study

The first command measures; with ``--budget 20m`` it stops after 20 minutes, and the same command
continues later. The second command rewrites the pages; it needs no data and makes no runs.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, cached_property
from pathlib import Path
from typing import Any

from benchmarks.blocks import table, with_blocks
from fedldp.experiments.comparing.design import Design, design_of

ROOT = Path(__file__).parents[1]
STUDY = ROOT / "study"
PUBLIC = ROOT / "benchmarks" / "results" / "2026-11-25-public-alone.jsonl"
PAGES = (
    "README.md",
    "docs/study.md",
    "docs/people.md",
)

CLIENTS = (1_000, 10_000, 100)
IN_SHORT = (100, 1_000)
EPSILONS = (1.0, 4.0, 16.0)
SEES = {
    "server": "every report and its sender",
    "shuffled-server": "every report, without senders",
    "summing-server": "sums of reports",
    "downlink": "everything, and is trusted; others see only the model",
}
"""What the server sees, by adversary."""

MUST_NOT_LEARN = {
    "server": "any server",
    "shuffled-server": "a server behind a shuffler",
    "summing-server": "a server that sees sums",
    "downlink": "those who see the model",
}
"""Who must not learn anything about what is protected, by adversary."""

CHOSEN_AT = 4.0
"""The epsilon at which the advice chooses the most accurate contestant."""

ADVISED = (1.0, CHOSEN_AT)
"""The epsilons for which the advice shows accuracies."""

HOW = ("local_update", "one_label", "mechanism", "bound", "participation", "channel", "features")
"""Settings that distinguish ways to protect clients or people."""

SITES = (3, 10, 50)
PEOPLE = {"mnist": ("MNIST", 6_000), "covertype": ("Covertype", 7_000)}
"""The names of data sets, and the total number of people across all sites."""

TITLES = {
    **{f"mnist-{clients}": f"MNIST, {clients:,} clients" for clients in CLIENTS},
    **{
        f"people-{data}": f"{name}, few sites with many people"
        for data, (name, _) in PEOPLE.items()
    },
    "covertype": "Covertype, 1,000 clients",
    "fmnist": "Fashion-MNIST, 1,000 clients",
    "unlike": "clients with unlike labels",
}
"""The tables with a page of their own, and the titles of these pages."""

TEMPLATE = """# Study: {title}

{unit}

The table has the mean accuracy on the test set in percent, with the standard deviation across
seeds; δ is $10^{{-5}}$. A cell marked `*` has a guarantee that holds for real numbers only, and so
only in simulation. A dash marks a cell that has not been measured. [The study](../study.md) has the
rule and the conclusion.

{table}
{note}
"""

CONCLUSION = """# Study: the conclusion in figures

Accuracies on the test set, at δ = $10^{-5}$; [the study](../study.md) has the rule, and the tables
from which these sentences are made.

"""

CHOICE = """# Study: which system

For each question, the system with the best accuracy on MNIST at ε = 4, among those that can be
deployed. The two numbers are its accuracies at ε = 1 and 4, in percent; a dash marks what has not
been measured, and a star a figure that holds in simulation only. [Choosing a
system](../tutorials/choosing_a_system.md) asks the questions, and [the study](../study.md) has the
rule.

"""

ALONE = """\
*Public data alone* is a ridge regression on the 8x8 digits of scikit-learn, with their labels; [no
client takes part](public_alone.md). `pose` uses knowledge of
handwriting."""

BY_ITSELF_NOTE = """\
*One site by itself* trains on its own people. One in six of all rows was held out to score its
candidate settings, because there was no other site."""

BY_ITSELF = {
    "person_dp_sgd, alone": "one site by itself, against anyone who gets its model",
    "no noise, alone": "one site by itself, no noise",
}
UNLIKE = {"dirichlet": "Dirichlet 0.1", "shards2": "two each", "shards1": "one each"}

BY = {
    "server": "k_closest once",
    "shuffled-server": "k_closest once, shuffled",
    "summing-server": "distributed_gaussian",
    "downlink": "central_dp",
}
"""The contestants that stand for an adversary in the README, chosen in advance, not by scores."""


@dataclass(frozen=True)
class Line:
    """One contestant at one epsilon, from the table.csv of ``fedldp compare``.

    Attributes:
        mean: accuracy in percent, over seeds.
        deviation: the standard deviation across seeds, in points.
        idealised: whether its guarantee holds only for real numbers, and so only in simulation.
        refused: why there is no accuracy; empty if there is one.
    """

    mean: float
    deviation: float
    idealised: bool
    refused: str

    def __str__(self) -> str:
        if self.refused:
            return "refused"
        return f"{self.mean:.1f} ± {self.deviation:.1f}{' *' if self.idealised else ''}"


@dataclass(frozen=True)
class Table:
    """A compare file of the study, and its measurements.

    Attributes:
        name: the file's name, without its extension.
    """

    name: str
    _folder: Path = field(default=STUDY, repr=False)

    @cached_property
    def design(self) -> Design:
        """The content of the file."""
        return design_of(
            [self._folder / f"{self.name}.toml"], {}, guarantee=None, epsilon=None, delta=None,
            metric=None, tries=None, seeds=None,
        )  # fmt: skip

    @cached_property
    def runs(self) -> list[dict[str, Any]]:
        """The finished runs, both tries and measured runs."""
        path = self._folder / "results" / self.name / "results.jsonl"
        if not path.exists():
            return []
        return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]

    @cached_property
    def lines(self) -> dict[tuple[str, float | None], Line]:
        """Results over all seeds, by contestant and epsilon; the epsilon of a reference is None."""
        path = self._folder / "results" / self.name / "table.csv"
        if not path.exists():
            return {}
        text = path.read_text(encoding="utf-8").splitlines()
        found = {}
        for row in csv.DictReader(line for line in text if not line.startswith("#")):
            whole = row["accuracy"] and row["seeds"] == row["of_seeds"]
            if whole or row["refused"]:
                epsilon = float(row["epsilon"]) if row["epsilon"] else None
                found[row["name"], epsilon] = Line(
                    100 * float(row["accuracy"] or "nan"),
                    100 * float(row["deviation"] or "nan"),
                    row["idealised"] == "True",
                    row["refused"],
                )
        return found

    def shown(self, contestant: str, epsilon: float | None) -> str:
        """Return what a page shows for a contestant."""
        line = self.lines.get((contestant, epsilon))
        return "-" if line is None else str(line)

    @property
    def references(self) -> list[str]:
        """Contestants without noise."""
        return [name for name, entry in self.design.entries.items() if entry.reference]

    @property
    def contestants(self) -> list[str]:
        """Contestants with noise."""
        return [name for name, entry in self.design.entries.items() if not entry.reference]


@cache
def tables() -> list[Table]:
    """Return all compare files, ordered by name."""
    return [Table(path.stem) for path in sorted(STUDY.glob("*.toml"))]


def of(clients: int, adversary: str) -> Table:
    """Return a table for MNIST."""
    return Table(f"mnist-{clients}-{adversary}")


def mean(clients: int, adversary: str, contestant: str, epsilon: float | None) -> float:
    """Return an accuracy on MNIST in percent.

    Raises:
        KeyError: it is not measured.
    """
    return of(clients, adversary).lines[contestant, epsilon].mean


@cache
def public_alone() -> Mapping[str, float]:
    """Return the accuracy on MNIST of public data alone, in percent, by features."""
    found = [json.loads(line) for line in PUBLIC.read_text(encoding="utf-8").splitlines()]
    return {
        {"none": "pixels"}.get(row["features"], row["features"]): 100 * row["accuracy"]
        for row in found
        if row["epsilon"] is None
    }


def rows_of(names: Sequence[str]) -> list[list[str]]:
    """Return the rows of some tables, first without noise, then by what the server sees.

    A cell is empty if its table does not have that epsilon.
    """
    found = [Table(name) for name in names]
    free = [
        ["no noise", name.removeprefix("no noise, "), *_cells(each, name, without=True)]
        for each in found
        for name in each.references
    ]
    return free + [
        [SEES[each.design.guarantee.adversary], name, *_cells(each, name)]
        for each in found
        for name in each.contestants
    ]


def _cells(each: Table, name: str, *, without: bool = False) -> list[str]:
    return [
        each.shown(name, None if without else epsilon) if epsilon in each.design.epsilons else ""
        for epsilon in EPSILONS
    ]


def many(clients: int) -> str:
    """Return the table for MNIST with a given number of clients."""
    alone = [
        ["public data alone", name, *[f"{public_alone()[name]:.1f}"] * 3]
        for name in ("pixels", "pose")
    ]
    rows = rows_of([f"mnist-{clients}-{adversary}" for adversary in SEES])
    return table(_head(EPSILONS), [*alone, *rows])


def others(data: str) -> str:
    """Return the table for other data with 1,000 clients."""
    known = [each for each in SEES if (STUDY / f"{data}-1000-{each}.toml").exists()]
    return table(_head(EPSILONS), rows_of([f"{data}-1000-{adversary}" for adversary in known]))


def unlike() -> str:
    """Return the table for clients with unlike labels."""
    rows = []
    for kind, words in UNLIKE.items():
        rows += [[words, *row] for row in rows_of([f"mnist-1000-{kind}-server"])]
    return table(["labels of a client", *_head(EPSILONS)], rows)


def people(data: str) -> str:
    """Return the table for people at few sites."""
    pooled = Table(f"people-{data}-10-downlink")
    epsilons = pooled.design.epsilons
    rows = [["any", "no noise", *[pooled.shown("no noise", None)] * 3]]
    if data == "mnist":
        alone = f"{public_alone()['soft-gradients']:.1f}"
        rows.insert(0, ["none", "public data alone", *[alone] * 3])
    rows += [
        ["any", SEES["downlink"], *(pooled.shown(name, e) for e in epsilons)]
        for name in pooled.contestants
    ]
    for sites in SITES:
        for adversary in ("server", "summing-server"):
            each = Table(f"people-{data}-{sites}-{adversary}")
            (name,) = each.contestants
            rows.append([str(sites), SEES[adversary], *(each.shown(name, e) for e in epsilons)])
        each = Table(f"people-{data}-{sites}-alone")
        for name, words in BY_ITSELF.items():
            free = name in each.references
            rows.append(
                [str(sites), words, *(each.shown(name, None if free else e) for e in epsilons)]
            )
    return table(["sites", "the server sees", *(f"ε {e:g}" for e in epsilons)], rows)


def people_in_short() -> str:
    """Return the README's table for people, without rows that are not measured yet."""
    rows = []
    for data, (title, number) in PEOPLE.items():
        for sites in SITES:
            found = {}
            for kind in (f"{sites}-server", f"{sites}-summing-server", "10-downlink",
                         f"{sites}-alone"):  # fmt: skip
                each = Table(f"people-{data}-{kind}")
                (name,) = each.contestants
                found[kind] = [each.lines.get((name, e)) for e in each.design.epsilons]
            if any(any(lines) for kind, lines in found.items() if kind != "10-downlink"):
                cells = [", ".join(map(_rounded, lines)) for lines in found.values()]
                rows.append([title, f"{sites} x {number // sites:,}", *cells])
    head = ["any server", "behind a sum", "pooled, central noise", "one site by itself"]
    return table(["data", "sites x people", *head], rows)


def _head(epsilons: Sequence[float]) -> list[str]:
    return ["the server sees", "contestant", *(f"ε {epsilon:g}" for epsilon in epsilons)]


def in_short() -> str:
    """Return the README's table for many clients, by whom they trust and by their number."""
    kinds = ("pixels", "pose")
    rows = []
    for adversary, name in BY.items():
        cells = [
            [of(clients, adversary).lines.get((f"{name}, {kind}", e)) for e in EPSILONS]
            for clients in IN_SHORT
            for kind in kinds
        ]
        rows.append([SEES[adversary], *(", ".join(map(_rounded, each)) for each in cells)])
    head = [f"{clients:,} clients, {kind}" for clients in IN_SHORT for kind in kinds]
    return table(["the server sees", *head], rows)


def advice() -> str:
    """Return the most accurate ways to protect clients and people, by who must not learn anything.

    The choice is among what can be deployed, unless only a simulation was measured.
    """
    measured = [(of(clients, by), f"{clients:,}") for by in SEES for clients in sorted(CLIENTS)] + [
        (Table(f"mnist-1000-{kind}-server"), f"1,000, labels: {words}")
        for kind, words in UNLIKE.items()
    ]
    for way in ("server", "summing-server"):
        measured += [(Table(f"people-mnist-{sites}-{way}"), f"{sites} sites") for sites in SITES]
    rows: dict[tuple[str, str, str], list[tuple[str, str]]] = {}
    for each, clients in measured:
        name, kind = most_accurate(each), each.design.guarantee
        unit = "client" if kind.unit == "client-run" else "record, person"
        cells = ", ".join(_rounded(each.lines.get((name, epsilon))) for epsilon in ADVISED)
        key = MUST_NOT_LEARN[kind.adversary], unit, how(each, name)
        rows.setdefault(key, []).append((clients, cells))
    head = ["who must not learn it", "anything about a", "system", "clients: accuracy in %"]
    return table(head, [
        [*key, "; ".join(f"{clients}: {cells}" for clients, cells in found)]
        for key, found in rows.items()
    ])  # fmt: skip


def most_accurate(each: Table) -> str:
    """Return the contestant with the best mean accuracy at ``CHOSEN_AT``; see ``advice``.

    Raises:
        ValueError: nothing is measured there.
    """
    found = {
        name: line
        for (name, epsilon), line in each.lines.items()
        if epsilon == CHOSEN_AT and not line.refused
    }
    real = {name: line for name, line in found.items() if not line.idealised} or found
    return max(real, key=lambda name: real[name].mean)


def how(each: Table, name: str) -> str:
    """Return a contestant's system, and the settings that make it what it is."""
    config = each.design.entries[name].config
    fields = type(config).model_fields
    given = [
        f"{setting} = {str(value).lower() if isinstance(value, bool) else value}"
        for setting in HOW
        if setting in fields and (value := getattr(config, setting)) != fields[setting].default
    ]
    told = f" with `{', '.join(given)}`" if given else ""
    return f"`{config.name()}`{told}"


def _rounded(line: Line | None) -> str:
    if line is None or line.refused:
        return "-"
    return f"{line.mean:.0f}{' *' if line.idealised else ''}"


def conclusion() -> str:
    """Return what to use, in sentences that follow from the tables.

    Raises:
        ValueError: a sentence no longer follows; write another. KeyError: a sentence's subject is
            not measured.
    """
    return "".join(f"- {sentence}\n" for sentence in sentences())


def headlines() -> str:
    """Return what the sentences of the conclusion say first, without their figures."""
    said = (re.match(r"\*\*(.+?)[:,]\*\*", sentence) for sentence in sentences())
    return "".join(f"- {found[1]}.\n" for found in said if found)


def sentences() -> list[str]:
    """Return the sentences of the conclusion; see ``conclusion``."""

    def at(name: str, epsilon: float | None, clients: int = 1_000, by: str = "server") -> float:
        return mean(clients, by, name, epsilon)

    def spread(name: str, epsilon: float) -> float:
        return of(1_000, "server").lines[name, epsilon].deviation

    pixels, pose = "k_closest once, pixels", "k_closest once, pose"
    hidden = [f"k_closest once, shuffled, {kind}" for kind in ("pixels", "pose")]
    trusted = [f"central_dp, {kind}" for kind in ("pixels", "pose")]
    free = [at(f"no noise, {kind}", None) for kind in ("pixels", "pose")]
    central = [at(name, 4.0, by="downlink") for name in trusted]
    sums = [f"distributed_gaussian, {kind}" for kind in ("pixels", "pose")]
    summed = {e: [at(name, e, by="summing-server") for name in sums] for e in EPSILONS}
    few = [at(name, 4.0, 100, "summing-server") for name in sums]
    shuffled = {e: [at(name, e, by="shuffled-server") for name in hidden] for e in EPSILONS}
    named = {e: [at(name, e) for name in (pixels, pose)] for e in EPSILONS}
    bits, ideal = "LDP-FL's bits, pixels", "PrivUnit once, pixels"
    many = [at(name, 1.0, 10_000, "shuffled-server") for name in hidden]
    gains = [one - other for one, other in zip(shuffled[1.0], named[1.0], strict=True)]
    ridge = [at(pose, e) - at("ridge solution, k_closest, pose", e) for e in EPSILONS]
    alone = public_alone()["pose"]
    hundred = [at(name, 1.0, 100, "downlink") for name in trusted]
    one_label = Table("mnist-1000-shards1-server")
    labelled = [one_label.lines[name, 4.0].mean for name in one_label.contestants]
    unlike = {
        kind: [Table(f"mnist-1000-{kind}-server").lines[name, 4.0].mean
               for name in (pose, "ridge solution, k_closest, pose")]
        for kind in ("dirichlet", "shards2")
    }  # fmt: skip

    def site(number: int, kind: str, epsilon: float | None, data: str = "mnist") -> float:
        each = Table(f"people-{data}-{number}-{kind}")
        return each.lines[(each.contestants if epsilon else each.references)[0], epsilon].mean

    pooled = site(10, "downlink", 1.0)
    ways = ("server", "summing-server")
    few_sites, ten, fifty = ([site(number, way, 1.0) for way in ways] for number in SITES)
    table_of_ten = [site(10, way, 1.0, "covertype") for way in ways]
    table_pooled = site(10, "downlink", 1.0, "covertype")
    by_itself = site(50, "alone", None), site(50, "alone", 1.0)
    rows, strict = (
        [
            Table(f"covertype-1000-{by}").lines[f"{BY[by]}, unit-norm", epsilon].mean
            for by in ("server", "summing-server", "downlink")
        ]
        for epsilon in (4.0, 1.0)
    )
    fashion = Table("fmnist-1000-server").lines
    cost = fashion["no noise, pixels", None].mean - fashion[pixels, 4.0].mean
    said = [
        (
            all(0 < one - other < 2 for one, other in zip(free, central, strict=True)),
            "**Trust in a server costs little accuracy:** with 1,000 clients, central noise costs "
            f"{free[0] - central[0]:.1f} points on pixels and {free[1] - central[1]:.1f} on pose "
            "features at ε = 4.",
        ),
        (
            all(abs(one - other) < 1 for one, other in zip(central, summed[4.0], strict=True)),
            "**A secure sum is within a point of central noise:** with a secure sum, 1,000 clients "
            f"reach {summed[4.0][0]:.1f} % on pixels and {summed[4.0][1]:.1f} on pose features at "
            f"ε = 4, and {summed[1.0][0]:.1f} and {summed[1.0][1]:.1f} at ε = 1.",
        ),
        (
            all(named[e][1] > named[e][0] for e in EPSILONS)
            and all(at(name, 4.0, 10_000) < at(name, 4.0) for name in (pixels, pose))
            and all(at(name, 1.0, 10_000) > at(name, 1.0) for name in (pixels, pose)),
            "**If nobody is trusted, let each client answer once, with `k_closest`:** at ε = 1, 4 "
            f"and 16, 1,000 clients reach {_listed(v[0] for v in named.values())} % on pixels and "
            f"{_listed(v[1] for v in named.values())} % on pose features. If 10,000 clients share "
            f"the same examples, they reach less at ε = 4 ({at(pixels, 4.0, 10_000):.0f} and "
            f"{at(pose, 4.0, 10_000):.0f} %), but more at ε = 1 ({at(pixels, 1.0, 10_000):.0f} and "
            f"{at(pose, 1.0, 10_000):.0f} %).",
        ),
        (
            min(gains) > 15
            and all(abs(a - b) < 1 for a, b in zip(shuffled[4.0], named[4.0], strict=True))
            and all(one > other for one, other in zip(many, shuffled[1.0], strict=True)),
            "**A shuffler pays off at small ε:** 1,000 clients that answer once, with `k_closest`, "
            f"gain {gains[0]:.0f} points on pixels and {gains[1]:.0f} on pose features from a "
            "shuffler at ε = 1, but less than one point at ε = 4. With a shuffler, 10,000 clients "
            f"reach {many[0]:.0f} % on pixels and {many[1]:.0f} on pose features at ε = 1.",
        ),
        (
            named[4.0][1] > free[0] > named[4.0][0]
            and named[1.0][1] < alone < named[4.0][1]
            and shuffled[1.0][1] > alone,
            "**Public features can be worth more than trust:** pose features at ε = 4 against any "
            f"server ({named[4.0][1]:.1f} %) are more accurate than pixels without noise "
            f"({free[0]:.1f} %). But with these features, public data alone, without any client, "
            f"reach {alone:.0f} %: more than 1,000 clients at ε = 1 against any server, but less "
            "than the same clients with a shuffler.",
        ),
        (
            at(pixels, 4.0, 100) < at(pixels, 4.0) - 10
            and at(pose, 4.0, 100) < at(pose, 4.0) - 10
            and min(few) > 80
            and max(hundred) < alone,
            "**A hundred clients need a secure sum, and an ε above 1:** at ε = 4 they reach "
            f"{few[0]:.0f} % on pixels and {few[1]:.0f} on pose features with a sum, but "
            f"{at(pixels, 4.0, 100):.0f} and {at(pose, 4.0, 100):.0f} against any server. At ε = 1 "
            f"even central noise gives only {hundred[0]:.0f} and {hundred[1]:.0f}, and on pose "
            "features this is less than public data alone reach.",
        ),
        (
            all(
                abs(at(ideal, e) - at(pixels, e)) <= max(1.0, spread(ideal, e), spread(pixels, e))
                for e in EPSILONS
            )
            and at(bits, 4.0) < 20
            and at(bits, 1.0) < 15,
            "**`k_closest`, which can be deployed, is as accurate as PrivUnit,** which is proven "
            "only for real numbers: on pixels with 1,000 clients, the two differ by at most one "
            "point or one standard deviation across seeds. One bit per weight, as in LDP-FL, "
            f"reaches only {_listed(at(bits, e) for e in EPSILONS)} % at ε = 1, 4 and 16.",
        ),
        (
            max(ridge) < 4.5
            and min(ridge) > 0
            and all(other > one + 5 for one, other in unlike.values()),
            "**The simplest method is nearly the best, and the best if clients differ:** one ridge "
            f"regression per client, sent once, is {min(ridge):.1f} to {max(ridge):.1f} points "
            "behind SGD on pose features if clients have similar data. At ε = 4 the regression is "
            f"ahead of SGD if the clients' labels differ: {unlike['dirichlet'][1]:.0f} % against "
            f"{unlike['dirichlet'][0]:.0f} (Dirichlet 0.1), and {unlike['shards2'][1]:.0f} against "
            f"{unlike['shards2'][0]:.0f} (two labels per client).",
        ),
        (
            labelled[2] > labelled[1] > labelled[0],
            "**Clients with one label each should send this label with their direction:** on pose "
            f"features at ε = 4, 1,000 such clients then reach {labelled[2]:.0f} % against any "
            f"server, but {labelled[1]:.0f} with the regression without the label, and "
            f"{labelled[0]:.0f} with SGD.",
        ),
        (
            pooled - 3 < few_sites[0] < pooled
            and ten[0] < pooled - 5
            and fifty[0] < ten[0] - 10
            and all(abs(each[1] - pooled) < 1 for each in (few_sites, ten, fifty)),
            "**If each person is protected, three sites lose little without trust, and more sites "
            "need a secure sum:** at ε = 1 per row and with 6,000 people in total, 3, 10 and 50 "
            f"sites reach {few_sites[0]:.0f}, {ten[0]:.0f} and {fifty[0]:.0f} % against any "
            f"server, but {few_sites[1]:.0f}, {ten[1]:.0f} and {fifty[1]:.0f} % with a secure sum; "
            f"central noise on the pooled rows reaches {pooled:.0f} %. On Covertype, ten sites "
            f"reach {table_of_ten[0]:.0f} % against any server and {table_of_ten[1]:.0f} % with a "
            f"secure sum, and central noise on the pooled rows reaches {table_pooled:.0f} %.",
        ),
        (
            by_itself[1] < fifty[0] - 20
            and fifty[0] < by_itself[0] < fifty[1]
            and site(10, "alone", None) > ten[1],
            "**A small site gains from a secure sum, even compared with keeping its own model to "
            f"itself:** fifty sites reach {fifty[1]:.0f} % with a secure sum at ε = 1. One of them "
            f"reaches {by_itself[0]:.0f} % on its own people without noise, and only "
            f"{by_itself[1]:.0f} % if it shares its own model at this ε. One of ten sites reaches "
            f"{site(10, 'alone', None):.0f} % without noise, and gains from a secure sum only if "
            "it would otherwise share its model.",
        ),
        (
            max(rows) - min(rows) < 3 and cost > 5 and min(strict[1:]) > strict[0] + 10,
            "**On a table with few features trust matters less, except at small ε:** at ε = 4, "
            f"1,000 Covertype clients reach {rows[0]:.0f} % against any server, {rows[1]:.0f} with "
            f"a secure sum and {rows[2]:.0f} with central noise; at ε = 1 they reach "
            f"{_listed(strict)}. At ε = 4, trusting nobody costs {cost:.0f} points on the pixels "
            f"of Fashion-MNIST, and {free[0] - named[4.0][0]:.0f} on the pixels of MNIST.",
        ),
    ]
    for holds, text in said:
        if not holds:
            raise ValueError(f"this sentence does not follow from the results: {text}")
    return [text for _, text in said]


def _listed(values: Iterable[float]) -> str:
    *most, last = [f"{value:.0f}" for value in values]
    return f"{', '.join(most)} and {last}"


@cache
def made() -> dict[str, str]:
    """Return everything that is made from the results, by the name of its block in a page."""
    return {
        **{f"mnist-{clients}": many(clients) for clients in CLIENTS},
        **{f"people-{data}": people(data) for data in ("mnist", "covertype")},
        **{data: others(data) for data in ("covertype", "fmnist")},
        "unlike": unlike(),
        "in-short": in_short(),
        "people-in-short": people_in_short(),
        "headlines": headlines(),
    }


def result_pages() -> dict[str, str]:
    """Return the text of the page of each table, by file name."""
    names = {"unlike": "unlike"} | {name: name.replace("-", "_") for name in TITLES}
    made_of_all = {
        "study_conclusion.md": CONCLUSION + conclusion(),
        "study_choice.md": CHOICE + advice(),
    }
    return made_of_all | {
        f"study_{file}.md": TEMPLATE.format(
            title=TITLES[name], unit=_unit(name), table=made()[name], note=_note(name)
        ).rstrip("\n")
        + "\n"
        for name, file in names.items()
    }


def _unit(name: str) -> str:
    """Return what the guarantees of a table protect."""
    if name.startswith("people"):
        data = name.removeprefix("people-")
        soft = "The features are soft gradients, and there" if data == "mnist" else "There"
        number = f"{PEOPLE[data][1]:,} people in total"
        return f"The unit is one row, and each person has one row. {soft} are {number}."
    unit = "The unit is all that one client sends in its whole run."
    if name == "unlike":
        alone = "each trains on its own data, and the server sees every report"
        return f"MNIST, 1,000 clients; {alone}. {unit}"
    return unit


def _note(name: str) -> str:
    """Return what a reader of a table must know besides."""
    if name.startswith("mnist"):
        return ALONE
    if name.startswith("people"):
        steps = {
            "mnist": "The row without noise is federated averaging with one client.",
            "covertype": "The row without noise takes the same steps at ε 10,000.",
        }
        return f"{BY_ITSELF_NOTE} {steps[name.removeprefix('people-')]}"
    return ""


def updated(page: str) -> str:
    """Return a page's text with everything that comes from results rewritten."""
    return with_blocks((ROOT / page).read_text(encoding="utf-8"), made())


def main() -> None:
    """Rewrite the pages."""
    for page in PAGES:
        (ROOT / page).write_text(updated(page), encoding="utf-8")


if __name__ == "__main__":
    main()
