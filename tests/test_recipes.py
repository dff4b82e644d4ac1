"""A recipe's name agrees with its configuration, and every row and curve has its own recipe."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import fedldp.algorithms.recipes
from fedldp.algorithms.recipes import Expected, Source, find_recipe, recipes
from fedldp.core.errors import ConfigError

NUMBER = r"(\d+(?:\.\d+)?)"
SAID_BY_NAMES = {
    rf"-eps{NUMBER}$": "epsilon",
    rf"-alpha{NUMBER}$": "alpha",
    rf"-r{NUMBER}$": "range_radius",
    rf"-(?:n|clients){NUMBER}$": "num_clients",
}


@pytest.mark.parametrize(("pattern", "setting"), SAID_BY_NAMES.items(), ids=SAID_BY_NAMES.values())
def test_a_number_in_a_name_is_that_of_the_setting(pattern: str, setting: str) -> None:
    named = {name: re.search(pattern, name) for name in recipes()}
    found = {name: match[1] for name, match in named.items() if match}
    assert len(found) >= 4
    for name, number in found.items():
        assert getattr(find_recipe(name).config, setting) == float(number), name


def test_names_begin_with_the_system_and_the_data_set() -> None:
    for name, recipe in recipes().items():
        config = recipe.config
        if name not in ("quickstart", "fedavg-quickstart"):
            start = f"{config.system.replace('_', '-')}-{config.dataset.removesuffix('-extra')}"
            named = name.replace("person-rule", "person-dp-sgd")  # the same system, by the rule
            assert f"{named}-".startswith(f"{start}-"), name


def test_every_recipe_is_described_in_one_line_with_its_settings() -> None:
    for name, recipe in recipes().items():
        assert recipe.name == name
        assert re.fullmatch(r"\S.{20,}\.", recipe.description), name
        assert "{" not in recipe.description, name


def test_recipes_with_the_same_configuration_are_listed_as_second_names() -> None:
    by_config: dict[str, list[str]] = {}
    for name, recipe in recipes().items():
        by_config.setdefault(repr(recipe.config), []).append(name)
    for names in by_config.values():
        first, *more = [name for name in names if find_recipe(name).same_as is None]
        assert more == []
        assert {find_recipe(name).same_as for name in names} <= {None, first}


@pytest.mark.slow
def test_finding_a_recipe_makes_only_what_it_is_made_of() -> None:
    program = """from fedldp.algorithms import recipes
from fedldp.core.errors import ConfigError
recipes.find_recipe("personalized-mnist-fig2-low")
print(sorted(name for _, name in recipes._made))
recipes._made.clear()
try:
    recipes.find_recipe("nosuch")
except ConfigError:
    print(list(recipes._made))"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "['personalized-mnist-fig2-low']\n[]\n"


def test_a_recipe_is_found_in_any_file_of_any_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two folders may have a file of the same name, whatever the names of its recipes are."""
    folders = [tmp_path / "one", tmp_path / "other"]
    for folder in folders:
        folder.mkdir()
        (folder / "same.toml").write_text(FAMILY.replace('"x-', f'"{folder.name}-'))
    paths = [*fedldp.algorithms.recipes.__path__, *map(str, folders)]
    monkeypatch.setattr(fedldp.algorithms.recipes, "__path__", paths)
    for name in ("one-base", "one-n10-a", "other-base", "other-n4-b"):
        assert find_recipe(name).name == recipes()[name].name == name
    with pytest.raises(ConfigError, match="there is no such recipe or file"):
        find_recipe("one-n5-a")
    assert "one-base" in recipes()


FAMILY = """
paper = "A"
tolerance = 1.5

[[recipe]]
name = "x-base"
summary = "base"
[recipe.settings]
system = "personalized"
dataset = "digits"
num_clients = 4
rounds = 10
perturbation = "none"
clip = 2.0
num_examples = 100

[[recipe]]
name = "x-n{num_clients}-{label}"
like = "x-base"
set = { perturbation = "gaussian", sampling_probability = 0.5 }
unset = ["num_examples"]
accuracy = 90.0
each = [
    { label = "a", num_clients = 10, epsilon = 0.5 },
    { label = "b", num_clients = 4, epsilon = { repeat = [1.0, 2.0], times = 2 }, column = "own" },
]
summary = "for {num_clients} clients at clip {clip:g}: {label}"
place = "B"
row = "n {num_clients}"
column = "{label}"
"""


@pytest.fixture
def family(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that puts a file of recipes, with some changes, beside the others."""

    def put(*changes: tuple[str, str], file: str = "x.toml") -> None:
        folder = tmp_path / str(len(list(tmp_path.iterdir())))  # files that were read are kept
        folder.mkdir()
        text = FAMILY
        for old, new in changes:
            assert old in text
            text = text.replace(old, new)
        (folder / file).write_text(text)
        paths = [*fedldp.algorithms.recipes.__path__, str(folder)]
        monkeypatch.setattr(fedldp.algorithms.recipes, "__path__", paths)

    return put


def test_a_table_with_each_gives_a_numbered_recipe_for_every_entry(
    family: Callable[..., None],
) -> None:
    family()
    assert [name for name in recipes() if name.startswith("x-")] == ["x-base", "x-n10-a", "x-n4-b"]
    base, first, second = map(find_recipe, ("x-base", "x-n10-a", "x-n4-b"))
    assert base.config.num_examples == 100
    assert (base.source, base.expected) == (None, None)
    assert first.config == base.config.changed(
        num_clients=10,
        epsilon=0.5,
        perturbation="gaussian",
        sampling_probability=0.5,
        num_examples=None,
    )
    assert second.config.epsilon == [1.0, 2.0, 1.0, 2.0]
    assert second.source == Source(paper="A", place="B", row="n 4", column="own")
    assert first.source == Source(paper="A", place="B", row="n 10", column="a")
    assert (base.expected, second.expected) == (None, Expected(accuracy=0.9, tolerance=0.015))
    assert second.description == "for 4 clients at clip 2: b (A: 90 %)."


@pytest.mark.parametrize(
    ("old", "new", "refused"),
    [
        ("unset =", "unsetting =", r"recipes/x\.toml: unsetting is not a key of a recipe"),
        ("x-n{num_clients}-{label}", "x-twice", r"recipes/x\.toml: there are two recipes x-twice"),
        ("{num_clients}-{label}", "{clip}", r"recipes/x\.toml: x-n\{clip\}: 'clip' is not among"),
        ('"x-base"\nsummary', '"y"\nsummary', r"recipe x-n10-a: like = x-base: there is no such"),
        ('like = "x-base"', 'like = "x-n4-b"', r"recipe x-n4-b: like = x-n4-b: .* itself"),
        ('"x-base"', '"dp-sgd-digits"', r"recipe dp-sgd-digits: it is in \S+dp_sgd\.toml and in "),
    ],
)
def test_a_wrong_file_is_refused_in_one_line(
    family: Callable[..., None], old: str, new: str, refused: str
) -> None:
    family((old, new))
    with pytest.raises(ConfigError, match=rf"^{refused}[^\n]*$"):
        recipes()
