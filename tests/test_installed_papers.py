"""Papers in other packages: found by an entry point, never imported unasked, and own code."""

from __future__ import annotations

import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import guides
import pytest

import fedldp
from fedldp.algorithms.recipes import find_recipe, recipe_names, recipes
from fedldp.algorithms.systems import find_system, own_code, systems
from fedldp.core.errors import ConfigError
from fedldp.core.registry import installed_papers, paper_modules
from fedldp.mechanisms import mechanisms
from fedldp.reporting.runs import command
from fedldp.simulation.result import read_run

TOY = guides.paper_files()
"""The files of the guide's package."""

RECIPE = '[[recipe]]\nname = "{}"\nsummary = "{}"\nlike = "{}"\n'

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Return a function that installs a package with files, and an entry point for it."""
    monkeypatch.chdir(tmp_path)
    site = tmp_path / "site"
    site.mkdir()
    monkeypatch.syspath_prepend(str(site))

    yield lambda *to: guides.install(site, *to)
    forget()


@pytest.fixture
def toy(install: Install) -> None:
    install("toypaper", TOY)


def forget() -> None:
    for name in [name for name in sys.modules if name.partition(".")[0] in ("toypaper", "other")]:
        del sys.modules[name]


def is_imported(package: str = "toypaper") -> bool:
    return any(name.partition(".")[0] == package for name in sys.modules)


def test_the_guides_package_is_found(toy: None) -> None:
    assert set(TOY) >= {"__init__.py", "mechanism.py", "parts.py", "preset.py"}
    (paper,), left_out = installed_papers()
    assert (paper.package, left_out) == ("toypaper", [])
    assert [file.name for file in paper.files("recipes/*.toml")] == ["toypaper.toml"]


def test_nothing_is_imported_before_its_name_is_asked_for(toy: None, fedldp_command: Any) -> None:
    listed = fedldp_command("list", "--json")
    assert (listed.status, listed.err) == (0, "")
    assert fedldp_command("run", "quickstart", "--rounds", "1").status == 0
    assert fedldp_command("run", "toypaper-digit").status == 2
    assert "toypaper-digits" in recipe_names()
    assert "did you mean toypaper-digits" in fedldp_command("account", "toypaper-digit").err
    systems(), mechanisms(), recipes(), list(paper_modules("attacks"))
    assert not is_imported()
    names = {kind: {row["name"] for row in rows} for kind, rows in json.loads(listed.out).items()}
    assert names["recipes"] == set(recipe_names())
    (row,) = (row for row in json.loads(listed.out)["recipes"] if row["name"] == "toypaper-digits")
    assert row["system"] == "toypaper.preset:toy"
    assert row["description"].startswith("Toy on digits: eps 1 for a weight, 100 clients (of the ")
    assert find_recipe("toypaper-digits").config.rounds == 10
    assert is_imported()


@pytest.mark.parametrize(
    "summary",
    ["eps {epsilon:g}, radius {range_radius:g}", "eps {}, {0}, {epsilon.x}", "eps {epsilon:s}"],
)
def test_a_list_leaves_a_summary_whose_settings_are_not_all_given(
    install: Install, fedldp_command: Any, summary: str
) -> None:
    file = "recipes/toypaper.toml"
    old = "Toy on digits: eps {epsilon:g} for a weight, {num_clients} clients"
    install("toypaper", {**TOY, file: TOY[file].replace(old, summary)})
    rows = json.loads(fedldp_command("list", "recipes", "toypaper", "--json").out)
    assert rows[0]["description"] == f"{summary} (of the installed package toypaper)"


def test_its_figures_are_its_authors_word(toy: None) -> None:
    config = find_recipe("toypaper-digits-eps4").config
    assert config.system == config.name() == "toypaper.preset:toy"
    assert own_code(config) == ("toypaper.preset:toy",)
    lines = fedldp.account("toypaper-digits").guarantees
    assert lines
    for line in lines:
        assert line.stated_by == "toypaper.preset:toy"
        assert line.lower is None
    mixed = fedldp.account("quickstart", mechanism="toypaper.mechanism:Sign").guarantees
    assert {line.stated_by for line in mixed} == {"toypaper.mechanism:Sign"}
    assert not {"toy", "toypaper.preset:toy"} & set(systems())
    assert not {"toy_sign", "toypaper.mechanism:Sign"} & set(mechanisms())


@pytest.mark.parametrize("name", ["toy", "ldp_fl"])
def test_it_cannot_take_a_plain_name(install: Install, name: str) -> None:
    forged = "def of(settings):\n    return None\n\nof.__module__ = 'fedldp.papers.toy'\n"
    forged += f"of.__name__ = {name!r}\ntoy = preset()(of)\n"
    head = "from fedldp.algorithms.preset import preset\n"
    install("toypaper", {**TOY, "preset.py": head + forged})
    with pytest.raises(ConfigError, match="declare in it system"):
        find_recipe("toypaper-digits")
    known = systems()
    assert known.get(name) is (find_system(name) if name in known else None)
    assert known["ldp_fl"].__module__ == "fedldp.papers.ldp_fl.preset"


def test_fedldps_names_keep_their_meaning(install: Install, fedldp_command: Any) -> None:
    before = find_recipe("quickstart").config
    files = {"recipes/r.toml": RECIPE.format("quickstart", "another", "fedavg-digits")}
    files["recipes/s.toml"] = RECIPE.format("toy-digits", "another", "fedavg-digits")
    install("toypaper", files)
    assert find_recipe("quickstart").config == before
    why = "paper toypaper: recipe quickstart has the name of a recipe of fedldp; rename it"
    assert fedldp_command("list", "recipes").err == f"warning    {why}\n"
    asked = fedldp_command("account", "toy-digits")
    assert (asked.status, asked.out) == (2, "")
    assert asked.err.endswith(f"; left out: {why}\n")
    assert asked.err.count("\n") == 1


def test_a_name_that_two_packages_have_leaves_out_the_second_paper(
    install: Install, fedldp_command: Any
) -> None:
    for package in ("toypaper", "other"):
        text = RECIPE.format("toy-digits", "one", "fedavg-digits")
        text += RECIPE.format(f"{package}-digits", "two", "fedavg-digits")
        install(package, {"recipes/r.toml": text})
    why = "paper toypaper: recipe toy-digits has the name of a recipe of other; rename it"
    assert fedldp_command("list").err == f"warning    {why}\n"
    fedavg = find_recipe("fedavg-digits").config
    assert find_recipe("toy-digits").config == find_recipe("other-digits").config == fedavg
    with pytest.raises(ConfigError, match=f"^recipe toypaper-digits: .*left out: {why}$"):
        find_recipe("toypaper-digits")
    assert own_code(find_recipe("other-digits").config) == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("files", "value", "why"),
    [
        ({}, "nowhere", "entry point fedldp.papers = nowhere: there is no such package"),
        ({}, "fedldp.papers.ldp_fl", "entry point fedldp.papers = fedldp.papers.ldp_fl: this is a"),
        ({}, "toypaper:thing", "entry point fedldp.papers = toypaper:thing: "),
        ({"r": "x = "}, None, "paper toypaper: recipes/r.toml: TOMLDecodeError: "),
        ({"r": "x = 1"}, None, "paper toypaper: recipes/r.toml: KeyError: 'recipe'"),
        ({"r": '[[recipe]]\nname = "x"'}, None, "paper toypaper: recipes/r.toml: KeyError"),
        ({"r": RECIPE.format("--json", "s", "x")}, None, ".*'--json' cannot be a name"),
        ({"r": RECIPE.format("x", "s", "gone")}, None, "paper toypaper: recipe x: like = gone: "),
    ],
)
def test_a_broken_package_is_one_line_and_stops_nobody(
    install: Install, fedldp_command: Any, files: dict[str, str], value: str | None, why: str
) -> None:
    install("other", TOY)
    places = {"r": "recipes/r.toml"}
    written = {places[name]: text for name, text in files.items()}
    install("toypaper", {"__init__.py": "raise SystemExit", **written}, value)
    listed = fedldp_command("list")
    assert listed.status == 0
    assert re.fullmatch(f"warning    {why}.*\n", listed.err), listed.err
    assert "│ toypaper.preset:toy " in listed.out
    for name in ("quickstart", "fedavg-digits"):
        assert fedldp_command("run", name, "--print-config").err == ""
    assert not is_imported()
    assert not is_imported("other")


def test_a_package_in_a_package_is_found_without_importing_either(install: Install) -> None:
    (Path("site") / "other").mkdir()
    (Path("site") / "other" / "__init__.py").write_text("raise SystemExit")
    install("other.toypaper", {"recipes/r.toml": RECIPE.format("x-digits", "s", "fedavg-digits")})
    assert find_recipe("x-digits").config == find_recipe("fedavg-digits").config
    assert not is_imported("other")


def test_a_report_imports_nothing(toy: None, fedldp_command: Any) -> None:
    ran = fedldp_command("run", "toypaper-digits", "--rounds", "1", "--out", "run")
    assert ran.status == 0, ran.err
    (short,) = (line for line in ran.out.splitlines() if line.startswith("in short"))
    assert short.count("stated by toypaper.preset:toy") + short.count("Stated by") == 1
    forget()
    run = read_run(Path("run"))
    assert run.summary["recipe"] == "toypaper-digits"
    assert command(run) == "fedldp run ./run/config.json"
    assert not is_imported()


def test_its_attacks_run_against_its_own_systems_alone(install: Install) -> None:
    code = "def attacks(scenario, effort):\n    return [scenario]\n"
    install("toypaper", {**TOY, "attacks.py": code})
    ours = [module.__name__ for module in paper_modules("attacks", "fedldp.papers.ldpfl.preset")]
    assert ours == [module.__name__ for module in paper_modules("attacks")]
    assert not is_imported()
    user = type(find_recipe("toypaper-digits").config).__module__
    *others, own = (module.__name__ for module in paper_modules("attacks", user))
    assert (others, own) == (ours, "toypaper.attacks")


# Broken papers, each refused in one line before anything is trained

PLACE = Path(__file__).with_name("broken_papers.toml")
BROKEN = {row["what"]: row for row in tomllib.loads(PLACE.read_text(encoding="utf-8"))["broken"]}
EVENT = BROKEN["a mechanism that states nothing"]["old"]


@pytest.mark.parametrize("what", BROKEN)
def test_a_broken_paper_is_one_line(what: str, install: Install, fedldp_command: Any) -> None:
    row = BROKEN[what]
    file, old = row["file"], row["old"]
    assert old in TOY[file]
    code = TOY[file].replace(old, row["new"])
    if "Claim(" in code:
        code = code.replace("from fedldp.algo", "from fedldp.accounting.statement import Claim\n"
                            "from fedldp.algo", 1)  # fmt: skip
    install("toypaper", {**TOY, file: code})
    loads = not row["says"].startswith("system = ") or "tried on public rows" in row["says"]
    for asked in ("account", "run") if loads else ("show", "account", "run"):
        refused = fedldp_command(asked, "toypaper-digits")
        assert (refused.status, refused.out) == (2, "")
        expected = re.escape(f"error: {row['says']}").replace(r"\#", r"\d+")
        assert re.match(expected, refused.err), refused.err
        assert refused.err.count("\n") == 1
    assert not Path("runs").exists()


def test_a_paper_without_anything_to_read_is_left_out(
    install: Install, fedldp_command: Any
) -> None:
    install("toypaper", {"papers/preset.py": TOY["preset.py"]})
    listed = fedldp_command("list")
    assert listed.err == (
        "warning    entry point fedldp.papers = toypaper: this package has none of recipes/*.toml, "
        "preset*.py, mechanism*.py; name the one that is the paper\n"
    )


@pytest.mark.slow
def test_a_sweep_says_in_one_line_where_own_code_fails(
    install: Install, fedldp_command: Any
) -> None:
    code = TOY["mechanism.py"].replace(EVENT, "return {}[size]")
    install("toypaper", {**TOY, "mechanism.py": code})
    swept = fedldp_command("sweep", "toypaper-digits", "--out", "swept")
    assert swept.status == 2
    assert re.search(r"failed: code of your own: KeyError: 170 \(toypaper\.mechanism, line \d+\); "
                     "correct it there$", swept.err, re.M)  # fmt: skip
    assert "Traceback" not in swept.err
