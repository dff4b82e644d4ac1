"""Federated learning under local differential privacy, as two scikit-learn estimators."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from numbers import Integral
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassifierMixin,
    RegressorMixin,
    is_classifier,
    is_regressor,
)
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data

from fedldp.api import Recipe, run
from fedldp.core.errors import ConfigError, FedldpError
from fedldp.core.kinds import FITTED_AGAIN, SCORED_BY_USER
from fedldp.data.adapters import of_arrays
from fedldp.data.columns import identity
from fedldp.data.examples import Dataset, of_rows
from fedldp.data.label_range import LabelRange
from fedldp.experiments.advising import MANY, starting_point
from fedldp.experiments.advising.rule import by_rule
from fedldp.reporting import words
from fedldp.simulation.plan import problem_with
from fedldp.simulation.settings import from_mapping

_OWN = {
    "dataset": "X and y",
    "num_clients": "num_clients",
    "seed": "random_state",
    "target": "unit, adversary, epsilon and delta",
    "label_range": "the label_range of FederatedRegressor",
    "label_typical": "the label_typical of FederatedRegressor",
}
"""The settings that an estimator's parameters determine, with the names of these parameters."""


class ReleaseWarning(UserWarning):
    """Warns that private rows were or may be revealed in a way that no statement counts."""


class DoubtWarning(UserWarning):
    """Warns, without a test, that a model may be of little use."""


class EstimatorError(ConfigError, ValueError):
    """An estimator refuses an argument or data; a ``ValueError``, as in scikit-learn."""


@dataclass(eq=False, repr=False, kw_only=True)
class _Federated:
    """What the two estimators share; ``FederatedClassifier`` explains the parameters."""

    # If metadata routing is enabled, groups and persons reach fit without being requested.
    __metadata_request__fit = {"groups": True, "persons": True}  # noqa: RUF012 (scikit-learn's way)

    _cloned = False

    recipe: Recipe | None = None
    unit: str | None = None
    adversary: str | None = None
    epsilon: float | None = None
    delta: float = 1e-5
    num_clients: int | None = None
    settings: Mapping[str, Any] | None = None
    random_state: int = 0

    def fit(
        self,
        X: ArrayLike,  # noqa: N803 (scikit-learn's name)
        y: ArrayLike,
        groups: ArrayLike | None = None,
        persons: ArrayLike | None = None,
    ) -> Self:
        """Train on all rows.

        Args:
            X: numbers of shape (n, features), or (n, ...) for an image model.
            y: labels, shape (n,): of any type, of two classes or more, for a classifier; finite
                numbers for a regressor.
            groups: the client of each row, whole numbers from 0 or strings, shape (n,). Clients are
                not people: for ``Dataset.from_arrays``, people are the ``groups``.
            persons: the person of each row, in the same form. Rows with the same value belong to
                one person. A person with rows at two clients is refused, unless the setting
                ``persons_at_sites`` allows it. Without ``persons``, every row is a different
                person.

        Raises:
            EstimatorError: a parameter or the data are refused; a ``ValueError``.
        """
        if self._cloned:
            warnings.warn(words.line(FITTED_AGAIN), ReleaseWarning, stacklevel=2)
        with _as_value_errors():
            read = of_arrays(X, (), persons, context="X:")
        with _without_values():
            rows, labels = validate_data(
                self, X, y, allow_nd=True, ensure_all_finite=False, y_numeric=is_regressor(self)
            )
            if is_classifier(self):
                check_classification_targets(labels)
        with _as_value_errors():
            declared = self._declared(labels)
            self._check_not_swapped(groups, persons)
            self._check_clients(groups)
            read = replace(read, features=rows, labels=declared.pop("labels"))
            data = of_rows(read, None, clients=groups, test_share=0, name="X and y", **declared)
            settings = self._settings(groups is not None)
            made = run(self._recipe(persons is not None, data, settings), dataset=data, **settings)
        self.result_, self.privacy_ = made, made.privacy
        self._fitted(labels)
        for doubt in (*self._doubts(made.config.num_clients), *map(words.line, made.doubts)):
            warnings.warn(doubt, DoubtWarning, stacklevel=2)
        return self

    def _fitted(self, labels: NDArray[Any]) -> None:
        """Keep what predictions need of the labels, as scikit-learn checks them."""

    def score(
        self,
        X: ArrayLike,  # noqa: N803
        y: ArrayLike,
        sample_weight: ArrayLike | None = None,
    ) -> float:
        """Return the accuracy or R2 on these rows, and warn of what it reveals of private ones."""
        warnings.warn(words.line(SCORED_BY_USER), ReleaseWarning, stacklevel=2)
        return float(super().score(X, y, sample_weight))  # type: ignore[misc]

    def _declared(self, labels: NDArray[Any]) -> dict[str, Any]:
        """Return the labels, and what is declared of them, for ``of_rows``."""
        raise NotImplementedError

    def _features(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Return rows to predict from, checked."""
        check_is_fitted(self)
        with _without_values():
            return np.asarray(
                validate_data(self, X, reset=False, allow_nd=True, ensure_all_finite=False)
            )

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "result_")  # n_features_in_ is also set if ``fit`` refuses

    def __sklearn_clone__(self) -> Self:
        found: Self = super().__sklearn_clone__()  # type: ignore[misc]
        found._cloned = True
        return found

    def _check_clients(self, groups: ArrayLike | None) -> None:
        """Refuse rows without clients, or with two divisions among clients.

        Raises:
            ConfigError: neither or both of groups and num_clients are given.
        """
        if groups is None and self.num_clients is None:
            raise ConfigError(
                "groups: not given; pass the client of each row with fit(X, y, groups=clients), "
                "or in a pipeline with STEP__groups= or metadata routing; or set num_clients to "
                "divide the rows at random among that many simulated clients"
            )
        if groups is not None and self.num_clients is not None:
            raise ConfigError(
                f"num_clients = {self.num_clients}: groups already name the client of each row; "
                "give only one of the two"
            )

    def _check_not_swapped(self, groups: ArrayLike | None, persons: ArrayLike | None) -> None:
        """Refuse more clients than people, because somebody would have rows at several clients.

        Raises:
            ConfigError: there are more clients than people, and no setting allows it.
        """
        if groups is None or persons is None or "persons_at_sites" in (self.settings or {}):
            return
        clients, people = (
            len(set(map(identity, map(str, np.asarray(each).ravel().tolist()))))
            for each in (groups, persons)
        )
        if clients > people:
            raise ConfigError(
                f"groups names {clients} clients but persons names only {people} people, so "
                "somebody would have rows at several clients: groups are the clients, and "
                "persons are the owners of the rows; swap the two, or give "
                "settings={'persons_at_sites': ...}"
            )

    def _doubts(self, clients: int) -> list[str]:
        """Return warnings that need no test, such as that one of a few clients is hard to hide."""
        if self.unit not in ("client-run", "client-round") or clients >= MANY:
            return []
        return [
            f"unit = {self.unit}: there are {clients} clients, and with fewer than {MANY}, the "
            "noise that hides a whole client rarely leaves a useful model; give unit='person' or "
            "'record' if it is enough to hide that, and run `fedldp advise` to see what is "
            "viable"
        ]

    def _recipe(self, persons: bool, data: Dataset, settings: Mapping[str, Any]) -> Recipe:
        given = (self.unit, self.adversary, self.epsilon)
        if any(each is None for each in given) and any(each is not None for each in given):
            raise ConfigError(
                f"unit = {self.unit}, adversary = {self.adversary}, epsilon = {self.epsilon}: "
                "these three define one guarantee; give all of them, such as unit='person', "
                "adversary='server', epsilon=4.0, or none, for the recipe's own guarantee"
            )
        if self.unit == "person" and not persons:
            raise ConfigError(
                "unit = person: nothing says which person each row belongs to; pass fit(..., "
                "persons=), or give unit='record' if every row belongs to a different person"
            )
        if self.unit == "record" and persons:
            raise ConfigError(
                "unit = record: persons are given, so a person may have several rows, and hiding "
                "one row does not hide the person's other rows; give unit='person'"
            )
        if self.recipe is not None:
            return self.recipe
        if self.unit is None or self.adversary is None:
            raise ConfigError(
                "unit, adversary, epsilon: say what to protect, against whom, and with which "
                "epsilon, such as unit='person', adversary='server', epsilon=4.0; or give a "
                "recipe"
            )
        start = {"dataset": "X and y", "num_clients": 1}
        start |= starting_point(self.unit, self.adversary)
        if self.unit == "client-run" or {"model", "features"} & {*settings}:
            return from_mapping(start)
        plain = {"model": "linear", "server_optimizer": "none"}
        ruled = from_mapping({**start, **plain}).changed(**settings)
        return by_rule(ruled, problem_with(ruled, data, None), given=settings)

    def _settings(self, groups: bool) -> dict[str, Any]:
        """Return the arguments of ``run`` other than the recipe."""
        settings = dict(self.settings or {})
        for name in settings:
            if name in _OWN:
                raise ConfigError(
                    f"settings: {name} is set by {_OWN[name]}; leave it out of settings"
                )
        if not isinstance(self.random_state, Integral):
            raise ConfigError(
                f"random_state = {self.random_state!r}: give a whole number, because a simulation "
                "needs a fixed seed"
            )
        settings["seed"] = int(self.random_state)
        if not groups:
            settings["num_clients"] = self.num_clients
        if self.unit is not None:
            settings["target"] = {
                "unit": self.unit,
                "adversary": self.adversary,
                "epsilon": _number(self.epsilon),
                "delta": _number(self.delta),
            }
        return settings


@dataclass(eq=False, repr=False)
class FederatedClassifier(_Federated, ClassifierMixin, BaseEstimator):  # type: ignore[misc]
    """A classifier trained by clients who do not trust the server.

    ``fit`` is ``fedldp.run`` on all rows without a test set: weights and statement are bit for bit
    the same. Fitting is a simulation on this machine: ``privacy_`` states what the same
    configuration protects when it is deployed, for which unit and against whom.

    Every earlier step of a pipeline must be public: a scaler or an imputer fitted on the clients'
    rows releases what it measured, and no line of ``privacy_`` covers that.

    Args:
        recipe: a recipe's name, the path of a TOML file, or a configuration. By default, a person
            or a row is protected by a linear model on rows of norm 1, whose settings follow from
            the numbers of rows, people and clients; see docs/table_rule.md. For "client-run", and
            if ``settings`` name another model or other features, the default is the composition
            that `fedldp advise` runs, with the middle entry of its list of hyperparameters.
        unit: what the guarantee protects: "person" (``fit`` then needs ``persons``), "record" (one
            row), "client-round", "client-run" or "weight". Neither unit nor adversary has a
            default.
        adversary: against whom: "server" (no trust in anybody), "summing-server" (a secure sum),
            "shuffled-server" or "downlink" (the server is trusted).
        epsilon: the epsilon of that guarantee, for the whole run. If unit, adversary and epsilon
            are all left out, the recipe's own epsilon applies, with the meaning that the recipe
            gives it.
        delta: the delta of that guarantee.
        num_clients: the number of simulated clients among which the rows are divided at random, if
            ``fit`` gets no ``groups``.
        classes: all possible labels. The default is the labels in y, which reveals that somebody
            has each of them.
        settings: changes to the recipe's settings, by name; see `fedldp show SYSTEM`.
        random_state: the simulation's seed, a whole number. The same rows and seed give the same
            results, bit for bit.

    Attributes:
        classes_: the labels, sorted.
        n_features_in_: the number of columns of X.
        feature_names_in_: the names of the columns, if X has string names.
        privacy_: the statement of what one fit protects.
        result_: the ``fedldp.Result``.

    >>> X = np.random.default_rng(0).uniform(-1, 1, (600, 3))
    >>> y, sites = np.where(X[:, 0] > 0, "ill", "well"), np.arange(600) % 3
    >>> model = FederatedClassifier(unit="record", adversary="server", epsilon=8)
    >>> model.fit(X, y, groups=sites).predict([[0.9, 0, 0], [-0.9, 0, 0]]).tolist()
    ['ill', 'well']
    >>> [line.epsilon <= 8 for line in model.privacy_.guarantees if line.unit == "record"]
    [True]
    """

    recipe: Recipe | None = None
    classes: Sequence[Any] | None = field(default=None, kw_only=True)

    def _classes_of(self, labels: NDArray[Any]) -> NDArray[Any]:
        return np.unique(labels if self.classes is None else np.asarray(self.classes))

    def _fitted(self, labels: NDArray[Any]) -> None:
        self.classes_ = self._classes_of(labels)

    def _declared(self, labels: NDArray[Any]) -> dict[str, Any]:
        classes = self._classes_of(labels)
        listed = None if self.classes is None and len(classes) < 2 else _texts(classes)
        return {"labels": _texts(labels), "classes": listed}

    def predict_proba(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Return the probability of each class, in the order of ``classes_``, shape (n, K).

        Uses double precision if the model supports it, so that a row's result does not depend on
        the other rows.
        """
        rows = self._features(X)
        with _as_value_errors():
            return self.result_.predict_proba(rows, double=True)

    def predict(self, X: ArrayLike) -> NDArray[Any]:  # noqa: N803
        """Return the most probable class of each row, shape (n,)."""
        shares = self.predict_proba(X)
        found: NDArray[Any] = self.classes_[shares.argmax(1)]
        return found


@dataclass(eq=False, repr=False)
class FederatedRegressor(_Federated, RegressorMixin, BaseEstimator):  # type: ignore[misc]
    """A model that predicts numbers, trained by clients who do not trust the server.

    Everything but the following is as for ``FederatedClassifier``: the default is a linear model on
    rows of norm 1 by the rule for labels that are numbers, with half the squared error as the loss;
    it protects a person or a row.

    Args:
        label_range: the public range (low, high) of the numbers in y; numbers beyond an end count
            as that end, and so do predictions. It must not be measured on the data.
        label_typical: a public typical number, at which training starts; without it, it starts at
            the measured mean, or with few people in the middle of the range.
        recipe: see ``FederatedClassifier``, like all others.
        unit: "person" or "record".
        adversary: "server", "summing-server" or "downlink".
        epsilon: the epsilon of the guarantee.
        delta: the delta of the guarantee.
        num_clients: the number of simulated clients.
        settings: changes to the recipe's settings, by name.
        random_state: the simulation's seed.

    Attributes:
        n_features_in_: the number of columns of X.
        feature_names_in_: the names of the columns, if X has string names.
        privacy_: the statement of what one fit protects.
        result_: the ``fedldp.Result``.

    >>> X = np.random.default_rng(0).uniform(-1, 1, (600, 3))
    >>> days, sites = 5 + 4 * X[:, 0], np.arange(600) % 3
    >>> model = FederatedRegressor((0, 30), 5, unit="record", adversary="downlink", epsilon=8)
    >>> found = model.fit(X, days, groups=sites).predict([[0.9, 0, 0], [-0.9, 0, 0]])
    >>> bool(found[0] > 6 > 4 > found[1])
    True
    """

    label_range: tuple[float, float] | None = None
    label_typical: float | None = None

    def _declared(self, labels: NDArray[Any]) -> dict[str, Any]:
        if len(labels) < 2:
            raise ConfigError("y: there is only one sample; give at least 2")
        return {"labels": labels, "label_range": LabelRange(*self._range)}

    def predict(self, X: ArrayLike) -> NDArray[np.float64]:  # noqa: N803
        """Return the predicted number of each row, between the ends of the range, shape (n,)."""
        rows = self._features(X)
        with _as_value_errors():
            return self.result_.predict_numbers(rows, double=True)

    @property
    def _range(self) -> list[float]:
        if self.label_range is None:
            raise ConfigError(
                "label_range: not given; give the public range of the numbers in y, such as "
                "label_range=(0, 30), from public knowledge and never measured on the rows"
            )
        return [float(each) for each in self.label_range]

    def _settings(self, groups: bool) -> dict[str, Any]:
        """Return the arguments of ``run`` other than the recipe."""
        typical = None if self.label_typical is None else float(self.label_typical)
        found = {**super()._settings(groups), "label_range": self._range}
        return found if typical is None else {**found, "label_typical": typical}


@contextmanager
def _as_value_errors() -> Iterator[None]:
    """Raise refusals as scikit-learn raises them."""
    try:
        yield
    except FedldpError as error:
        raise EstimatorError(str(error)) from error


@contextmanager
def _without_values() -> Iterator[None]:
    """Shorten those of scikit-learn's refusals that print all rows, or a cell.

    Raises:
        EstimatorError: the refusal without the values.
    """
    try:
        yield
    except ValueError as error:
        refusal = str(error).partition("\n[")[0]
        raise EstimatorError(re.sub("(string to float): .*", r"\1", refusal)) from None


def _texts(labels: NDArray[Any]) -> list[str]:
    """Return labels of any type as the names of classes."""
    return [str(label) for label in labels.tolist()]


def _number(given: Any) -> Any:
    """Return a Python number for a numpy number, which a parameter grid may contain."""
    return given.item() if isinstance(given, np.generic) else given
