"""Five hospitals, a pipeline of scikit-learn, and a guarantee for each row against any server.

python examples/hospitals.py
"""

from __future__ import annotations

import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.frozen import FrozenEstimator
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import train_test_split
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler

from fedldp import FederatedClassifier, ReleaseWarning

# These ranges come from the data set's description; they are never measured on the rows.
LOW = [6.981, 9.71, 43.79, 143.5, 0.053, 0.019, 0.0, 0.0, 0.106, 0.05]
HIGH = [28.11, 39.28, 188.5, 2501.0, 0.163, 0.345, 0.427, 0.201, 0.304, 0.097]


def main() -> float:
    table = load_breast_cancer()
    diagnosis = np.where(table.target == 0, "malignant", "benign")
    rows, public, labels, public_labels = train_test_split(
        table.data[:, :10], diagnosis, test_size=0.25, random_state=0, stratify=diagnosis
    )
    hospitals = np.random.default_rng(0).integers(0, 5, len(rows))

    model = make_pipeline(
        FrozenEstimator(MinMaxScaler((-1, 1), clip=True).fit([LOW, HIGH])),
        FederatedClassifier(unit="record", adversary="server", epsilon=4.0),
    )
    model.fit(rows, labels, federatedclassifier__groups=hospitals)
    print(model[-1].privacy_)

    # We treat the rows that were set aside as public, so scoring them reveals nothing private.
    warnings.simplefilter("ignore", ReleaseWarning)
    auc = float(roc_auc_score(public_labels, model.predict_proba(public)[:, 1]))
    print(f"accuracy {model.score(public, public_labels):.3f}, AUC {auc:.3f}")
    return auc


if __name__ == "__main__":
    main()
