"""The scikit-learn estimator keeps scikit-learn's contract and has the guarantee of a run."""

from __future__ import annotations

import copy
import warnings
from typing import Any

import numpy as np
import pytest
import sklearn
import torch
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, GroupKFold, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, MinMaxScaler, OneHotEncoder
from sklearn.utils.estimator_checks import parametrize_with_checks

import fedldp
from fedldp import DoubtWarning, FederatedClassifier, FederatedRegressor, ReleaseWarning
from fedldp.core.errors import FedldpError
from fedldp.core.kinds import FITTED_AGAIN, SCORED_BY_USER
from fedldp.experiments.advising import starting_point
from fedldp.experiments.advising.rule import by_rule
from fedldp.reporting import words
from fedldp.simulation.plan import problem_with
from fedldp.simulation.settings import from_mapping

PRIVATE: dict[str, Any] = {"unit": "record", "adversary": "server", "epsilon": 8.0}
QUICK: dict[str, Any] = {"settings": {"rounds": 10}}


def rows(count: int = 200, seed: int = 0) -> tuple[Any, Any, Any]:
    features = np.random.default_rng(seed).uniform(-1, 1, (count, 3))
    return features, np.where(features[:, 0] > 0, "ill", "well"), np.arange(count) % 4


@pytest.fixture(scope="module")
def fitted() -> Any:
    features, labels, sites = rows()
    return FederatedClassifier(**PRIVATE, **QUICK).fit(features, labels, groups=sites)


def refusal(mistake: Any) -> str:
    with pytest.raises(FedldpError) as found:
        mistake()
    assert isinstance(found.value, ValueError)
    (line,) = str(found.value).splitlines()
    return line


# The contract. No check is skipped for the guarantee's sake; use of private rows is a warning.


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::fedldp.ReleaseWarning")
@pytest.mark.filterwarnings("ignore::fedldp.DoubtWarning")  # the checks use few rows
@parametrize_with_checks(
    [
        FederatedClassifier(**PRIVATE, **QUICK, num_clients=2),
        FederatedRegressor((-4, 8), **PRIVATE, num_clients=2),
    ]
)
def test_the_contract_of_scikit_learn(estimator: Any, check: Any) -> None:
    check(estimator)


# What the guarantee counts


def test_a_fit_is_the_run_on_the_same_rows(fitted: Any) -> None:
    features, labels, sites = rows()
    data = fedldp.Dataset.from_arrays(
        features, (labels == "well").astype(int), clients=sites, test_share=0, name="X and y"
    )
    target = {"unit": "record", "adversary": "server", "epsilon": 8.0, "delta": 1e-5}
    config = from_mapping(
        {
            "dataset": "X and y", "num_clients": 1, "system": "person_dp_sgd", "channel": "named",
            "model": "linear", "features": "unit-norm", "rounds": 10, "clip": 0.4,
            "learning_rate": 4.0, "epsilon": 1.0, "target": target,
        }
    )  # fmt: skip
    ruled = by_rule(config, problem_with(config, data, None), given=["rounds"])
    made = fedldp.run(ruled, dataset=data)
    same(fitted, made)
    assert fitted.result_.config == made.config


def same(found: Any, made: fedldp.Result) -> None:
    assert found.privacy_ == made.privacy
    assert found.result_.weights.keys() == made.weights.keys()
    for name, weights in made.weights.items():
        np.testing.assert_array_equal(found.result_.weights[name], weights)


@pytest.mark.slow
@pytest.mark.parametrize("more", [{"model": "logistic"}, {"features": "none"}])
def test_another_model_or_other_features_have_the_settings_of_advice(more: dict[str, Any]) -> None:
    features, labels, sites = rows()
    model = FederatedClassifier(**PRIVATE, settings=more).fit(features, labels, groups=sites)
    config = model.result_.config
    assert config.server_optimizer == "momentum"
    assert config.rounds == starting_point("record", "server")["rounds"]


@pytest.mark.slow
def test_the_default_is_the_rule_which_measures_where_there_are_many_rows() -> None:
    generator = np.random.default_rng(0)
    features = generator.normal(size=(4000, 3)) * [0.03, 1, 1]
    labels = generator.random(4000) < 1 / (1 + np.exp(2 - 100 * features[:, 0]))
    model = FederatedClassifier(unit="record", adversary="downlink", epsilon=4.0, num_clients=3)
    model.fit(features, labels)
    assert model.result_.config.measure_share == 0.1
    assert model.result_.config.intercept_share == 0.05
    found = model.predict_proba(features)[:, 1]
    assert roc_auc_score(labels, found) > 0.9
    assert found.mean() == pytest.approx(labels.mean(), abs=0.02)


@pytest.mark.slow
def test_persons_are_units_and_belong_to_one_client() -> None:
    features, labels, sites = rows()
    persons = np.array([f"p{row // 8}-{row % 4}" for row in range(200)])
    model = FederatedClassifier(**{**PRIVATE, "unit": "person"}, **QUICK)
    model.fit(features, labels, groups=sites, persons=persons)
    data = fedldp.Dataset.from_arrays(
        features, (labels == "well").astype(int), clients=sites, groups=persons, test_share=0
    )
    same(model, fedldp.run(model.result_.config.changed(dataset="custom"), dataset=data))
    (line,) = [each for each in model.privacy_.guarantees if each.unit == "person"]
    assert 7.9 < line.epsilon <= 8
    torn = persons.copy()
    torn[1] = torn[0]
    line = refusal(lambda: model.fit(features, labels, groups=sites, persons=torn))
    assert line.startswith("data set 'X and y': 1 person has rows at more than persons_at_sites")
    loose = clone(model).set_params(settings={"rounds": 10, "persons_at_sites": 2})
    with pytest.warns(ReleaseWarning):
        loose.fit(features, labels, groups=sites, persons=torn)
    assert loose.result_.config.persons_at_sites == 2


def test_a_recipe_has_its_own_guarantee() -> None:
    features, labels, _ = rows()
    model = FederatedClassifier(
        "quickstart", num_clients=4, settings={"rounds": 2, "epsilon": 2}, random_state=3
    ).fit(features, labels)
    data = fedldp.Dataset.from_arrays(features, (labels == "well").astype(int), test_share=0)
    same(model, fedldp.run("quickstart", dataset=data, num_clients=4, rounds=2, epsilon=2, seed=3))
    assert model.privacy_.claim.unit == "weight"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("unit", "adversary"),
    [("person", "server"), ("record", "summing-server"), ("client-run", "downlink")],
)
@pytest.mark.filterwarnings("ignore::fedldp.DoubtWarning")  # it has four clients
def test_every_guarantee_without_a_recipe_is_met(unit: str, adversary: str) -> None:
    features, labels, sites = rows()
    model = FederatedClassifier(unit=unit, adversary=adversary, epsilon=4.0)
    persons = np.arange(200) if unit == "person" else None
    model.fit(features, labels, groups=sites, persons=persons)
    lines = [
        line.epsilon
        for line in model.privacy_.guarantees
        if (line.unit, line.adversary) == (unit, adversary)
    ]
    assert lines
    assert 3.5 < min(lines) <= 4.0


# Labels and columns


class Single(torch.nn.Module):
    """A model that always computes in single precision, whatever precision it is given."""

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.zeros(shape[0], classes))

    def forward(self, examples: torch.Tensor) -> torch.Tensor:
        return examples.float() @ self.weights


def test_a_model_with_a_fixed_precision_keeps_it() -> None:
    features, labels, sites = rows()
    model = FederatedClassifier(
        "fedavg-quickstart", settings={"rounds": 1, "standardise": False, "model": Single}
    ).fit(features, labels, groups=sites)
    np.testing.assert_array_equal(
        model.predict_proba(features), model.result_.predict_proba(features)
    )


# Together with other scikit-learn objects


def public_steps(model: FederatedClassifier) -> Any:
    """Return a pipeline that scales by public ranges, not by the data it is fitted on."""
    ranges = FrozenEstimator(MinMaxScaler((-1, 1), clip=True).fit([[-1, -2, -3], [1, 2, 3]]))
    return make_pipeline(ranges, FunctionTransformer(np.tanh), model)


@pytest.mark.slow
def test_a_pipeline_of_public_steps_passes_groups_on() -> None:
    features, labels, sites = rows()
    model = FederatedClassifier(**PRIVATE, **QUICK)
    named = public_steps(model).fit(features, labels, federatedclassifier__groups=sites)
    with sklearn.config_context(enable_metadata_routing=True):
        routed = public_steps(FederatedClassifier(**PRIVATE, **QUICK))
        routed.fit(features, labels, groups=sites)
    scaled = np.tanh(features / [1, 2, 3])
    alone = FederatedClassifier(**PRIVATE, **QUICK).fit(scaled, labels, groups=sites)
    for each in (named, routed):
        same(each[-1], alone.result_)
    assert "groups: not given; pass the client" in refusal(
        lambda: public_steps(model).fit(features, labels)
    )


@pytest.mark.slow
def test_a_score_and_every_fit_of_a_clone_are_named_as_releases(fitted: Any) -> None:
    features, labels, sites = rows()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        copy.deepcopy(fitted).fit(features, labels, groups=sites)  # its statement is for one fit
    with pytest.warns(ReleaseWarning, match="exact function of the given rows"):
        assert fitted.score(features, labels) == np.mean(fitted.predict(features) == labels)
    with pytest.warns(ReleaseWarning, match="this classifier is a clone"):
        cross_val_score(
            fitted, features, labels, cv=2, scoring="roc_auc", params={"groups": sites},
            error_score="raise",
        )  # fmt: skip


@pytest.mark.slow
def test_a_search_keeps_persons_apart_and_warns() -> None:
    features, labels, sites = rows()
    persons = np.arange(200) // 8 * 4 + sites
    with sklearn.config_context(enable_metadata_routing=True):
        model = FederatedClassifier(**{**PRIVATE, "unit": "person"}, **QUICK)
        model.set_fit_request(groups="sites", persons=True)
        search = GridSearchCV(
            model,
            {"epsilon": np.array([8.0]), "settings": [{"rounds": 5}, {"rounds": 10}]},
            cv=GroupKFold(2),
            error_score="raise",
        )
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            search.fit(features, labels, groups=persons, sites=sites, persons=persons)
    assert {str(each.message) for each in said} == {
        words.line(FITTED_AGAIN),
        words.line(SCORED_BY_USER),
    }
    assert search.best_estimator_.result_.config.num_clients == 4
    assert search.best_estimator_.result_.config.rounds == search.best_params_["settings"]["rounds"]


@pytest.mark.parametrize("secret", [734.25 + 1j, "734.25 secret", {"734.25": 1}, [734.25]])
def test_a_refusal_shows_no_row(secret: Any) -> None:
    rows = np.zeros((20, 2), object)
    rows[3, 1] = secret
    labels = np.arange(20) % 2
    given = [(rows, labels), (rows.tolist(), labels), (np.zeros((20, 1)), rows[:, 1])]
    if isinstance(secret, complex):
        given += [(rows.astype(complex), labels), (np.zeros((20, 1)), rows[:, 1].astype(complex))]
    model = FederatedClassifier(unit="record", adversary="server", epsilon=8, num_clients=2)
    for X, y in given:  # noqa: N806
        with pytest.raises((ValueError, TypeError)) as found:
            model.fit(X, y)
        error: BaseException | None = found.value
        while error is not None:  # a traceback shows the whole chain
            assert "734" not in str(error)
            error = None if error.__suppress_context__ else error.__context__


def test_a_column_of_texts_is_refused_with_a_remedy() -> None:
    pandas = pytest.importorskip("pandas")
    features, labels, sites = rows()
    frame = pandas.DataFrame(features, columns=["age", "dose", "weight"])
    frame["sex"] = np.where(features[:, 1] > 0, "m", "f")
    model = FederatedClassifier(**PRIVATE, **QUICK)
    line = refusal(lambda: model.fit(frame, labels, groups=sites))
    assert "column 'sex' holds no numbers; make a 0/1 column" in line
    encoder = OneHotEncoder(categories=[["f", "m"]])
    encoded = make_column_transformer((encoder, ["sex"]), remainder="passthrough")
    whole = make_pipeline(encoded, model)  # makes such columns
    whole.fit(frame, labels, federatedclassifier__groups=sites)
    assert whole[-1].n_features_in_ == 5


def test_hiding_one_of_few_clients_gets_a_warning() -> None:
    features, labels, sites = rows()
    model = FederatedClassifier(**{**PRIVATE, "unit": "client-run"}, settings={"rounds": 1})
    with pytest.warns(DoubtWarning, match="there are 4 clients, and with fewer than"):
        model.fit(features, labels, groups=sites)
