"""Default settings on scikit-learn's diabetes and breast-cancer data, beside its own linear models.

Five held-out folds each, three shuffles. The defaults were chosen on other data.
"""

import sys

import numpy as np
from scipy import stats
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import BayesianRidge, LogisticRegression
from sklearn.model_selection import RepeatedKFold, RepeatedStratifiedKFold
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

import partialbayes as pb


def row(name, ours, theirs):
    difference = np.asarray(ours) - np.asarray(theirs)
    error = difference.std(ddof=1) / np.sqrt(len(difference))
    print(
        f"{name}: NLPD {np.mean(ours):.4f} against {np.mean(theirs):.4f}, "
        f"difference {difference.mean():+.4f} ± {error:.4f} over {len(ours)} folds"
    )


def regression(repeats):
    x, y = load_diabetes(return_X_y=True)
    ours, theirs, covered = [], [], []
    for train, test in RepeatedKFold(n_splits=5, n_repeats=repeats, random_state=0).split(x):
        model = pb.PartialBNNRegressor(random_state=0).fit(x[train], y[train])
        ours.append(-np.mean(model.predictive(x[test]).log_density(y[test])))
        low, high = model.predict_interval(x[test], 0.9)
        covered.append(np.mean((low <= y[test]) & (y[test] <= high)))
        ridge = make_pipeline(StandardScaler(), BayesianRidge()).fit(x[train], y[train])
        mean, std = ridge.predict(x[test], return_std=True)
        theirs.append(-stats.norm.logpdf(y[test], mean, std).mean())
    row("diabetes, against Bayesian ridge", ours, theirs)
    print(
        f"90 % intervals cover {np.mean(covered):.3f} (folds: {min(covered):.2f} to {max(covered):.2f})"
    )


def classification(repeats):
    x, y = load_breast_cancer(return_X_y=True)
    ours, theirs, accuracy, covered = [], [], [], []
    for train, test in RepeatedStratifiedKFold(n_splits=5, n_repeats=repeats, random_state=0).split(
        x, y
    ):
        model = pb.PartialBNNClassifier(random_state=0).fit(x[train], y[train])
        probabilities = model.predict_proba(x[test])
        own = probabilities[np.arange(len(test)), y[test]]
        ours.append(-np.mean(np.log(own)))
        accuracy.append(model.score(x[test], y[test]))
        # The smallest set of classes with probability 0.9.
        covered.append(np.mean((own == probabilities.max(axis=1)) | (probabilities.max(axis=1) < 0.9)))
        logistic = make_pipeline(StandardScaler(), LogisticRegression()).fit(x[train], y[train])
        theirs.append(-np.mean(logistic.predict_log_proba(x[test])[np.arange(len(test)), y[test]]))
    row("breast cancer, against logistic regression", ours, theirs)
    print(f"accuracy {np.mean(accuracy):.3f}; sets of 90 % cover {np.mean(covered):.3f}")


if __name__ == "__main__":
    repeats = int(sys.argv[1]) if len(sys.argv) > 1 else 3
    regression(repeats)
    classification(repeats)
