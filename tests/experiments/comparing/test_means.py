"""Means and frequencies without training: errors against closed forms, and one's own mechanism."""

import json
import textwrap

import pytest

from fedldp.experiments.comparing.means import Estimation, compare_means
from fedldp.mechanisms import mechanisms

OWN = """
from dataclasses import dataclass
from fedldp.mechanisms.gaussian import Gaussian

@dataclass(frozen=True)
class Twice(Gaussian):
    def aggregate(self, size):
        found = super().aggregate(size)
        mean = found.mean
        found.mean = lambda: 2 * mean()
        return found
"""
FAST = ["gaussian", "privunit", "piecewise", "nearest_direction", "laplace"]


@pytest.mark.slow
def test_errors_are_those_of_the_closed_forms():
    of = Estimation(60, 400)
    found = compare_means(of, [2.0], contestants=FAST, seeds=range(4))
    rows = {(row.name, row.channel): row for row in found.rows}
    assert {name for name, channel in rows if channel == "named"} == set(FAST)
    for (name, channel), row in rows.items():
        assert row.refused is None
        assert 0.9 * row.epsilon < row.proven <= row.epsilon
        if channel in ("named", "shuffle"):
            # Of 4 seeds with at least 60 coordinates, the relative deviation is about 9 %.
            assert row.mse == pytest.approx(row.closed, rel=0.45), (name, channel)
    assert rows["gaussian_share", "sum"].mse < rows["gaussian", "named"].mse
    assert rows["central_dp", "central"].mse < rows["gaussian", "named"].mse
    named = [row.mse for row in found.rows if row.channel == "named"]
    assert named == sorted(named)


@pytest.mark.slow
def test_frequencies_are_those_of_the_closed_forms():
    found = compare_means(
        Estimation(20, 1000, categories=True), [1.0], contestants=["k_rr", "unary"], seeds=range(3)
    )
    rows = {row.name: row for row in found.rows if row.channel == "named"}
    for name in ("k_rr (category)", "unary (category)"):
        assert rows[name].mse == pytest.approx(rows[name].closed, rel=0.8)
        assert rows[name].proven <= 1
        assert rows[name].mse < rows[name.removesuffix(" (category)")].mse / 2


@pytest.mark.slow
def test_ones_own_mechanism_is_compared_with_all_others(tmp_path, monkeypatch, fedldp_command):
    (tmp_path / "mine_of_means.py").write_text(textwrap.dedent(OWN))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(
        "fedldp.experiments.comparing.means.mechanisms",
        lambda: {"gaussian": mechanisms()["gaussian"]},
    )
    outcome = fedldp_command(
        "compare", "mine_of_means:Twice", "--mean", "d=50,n=300", "--epsilon", "2", "--json"
    )
    rows = {row["name"]: row for row in json.loads(outcome.out)["rows"]}
    own, house = rows["mine_of_means:Twice"], rows["gaussian"]
    assert own["stated_by"] == "mine_of_means:Twice"
    assert house["stated_by"] == "fedldp"
    # The planted factor of two shows: its error is not what its variance says.
    assert own["mse"] > 2.5 * own["closed"]
    assert house["mse"] == pytest.approx(house["closed"], rel=0.5)


def test_a_recipe_gives_the_numbers():
    of = Estimation.of("quickstart")
    assert (of.size, of.clients) == (650, 100)
