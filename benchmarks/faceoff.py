"""The estimators at their defaults beside what else a table can be given to, on the same splits.

``python benchmarks/faceoff.py run`` appends one line of JSON per method, table and split to the results
as they come, and leaves out what is there already; ``report`` writes the tables and pictures from them.
The data are a folder of the form that `read` takes, named by ``--data`` or the variable FACEOFF_DATA.
Methods whose packages are not installed are left out: ours run in the environment of the project, the
peers in one of their own (``make faceoff`` makes it from requirements-faceoff.txt).

Targets are in units of the training rows' standard deviation. NLPD and CRPS are those of the predictive
distribution a method gives; what gives a mean and a variance is taken for a Gaussian.
"""

import argparse
import gzip
import importlib.util
import json
import os
import time
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

HERE = Path(__file__).parent
RESULTS = HERE / "faceoff.jsonl"
REGRESSION = (
    "concreteslump", "yacht", "boston", "forest", "pendulum", "energy", "concrete", "solar",
    "wine_red", "abalone", "kin8nm", "power", "naval", "pol", "elevators", "protein",
)  # fmt: skip
CLASSIFICATION = (
    "sonar", "glass", "ionosphere", "breast_cancer", "australian", "pima", "german_credit",
    "digits", "phoneme", "satellite", "adult",
)  # fmt: skip
HEAD = """# Face-off

Written by `benchmarks/faceoff.py`. The estimators at their defaults beside others, all trained on the
same rows and scored on the same test rows. Splits: {splits}.

Targets are in units of the training rows' standard deviation. The best of a row is bold. Mean ranks are
of the methods that have all of the tables. Methods that give a mean and a variance are scored as
Gaussians, forests by the variance of the training rows in the leaves.
[How the defaults were chosen](guides/tables.md) says which of them rest on training rows alone.
{earlier}"""
_TITLES = {
    **{"crps": "CRPS", "nlpd": "NLPD", "rmse": "RMSE"},
    **{"ece": "Calibration error", "accuracy": "Accuracy"},
}
_LEAST = 1e-3  # of a standard deviation, in units of the target's


def read(folder, name):
    """A table as numbers: one column per category, gaps filled by the median and marked."""
    if name == "digits":
        from sklearn.datasets import load_digits

        return load_digits(return_X_y=True)
    path = next(
        path for kind in ("uci", "tables") if (path := folder / kind / f"{name}.csv.gz").exists()
    )
    frame = pd.read_csv(path)
    columns = []
    for column in frame.columns[:-1]:
        values = frame[column]
        if pd.api.types.is_numeric_dtype(values):
            columns.append(values.fillna(values.median()).to_numpy(float)[:, None])
            if values.isna().any():
                columns.append(values.isna().to_numpy(float)[:, None])
        else:
            columns.append(pd.get_dummies(values.fillna("(missing)")).to_numpy(float))
    targets = frame.iloc[:, -1]
    if name in CLASSIFICATION:
        return np.concatenate(columns, axis=1), np.unique(targets.astype(str), return_inverse=True)[1]
    return np.concatenate(columns, axis=1), targets.to_numpy(float)


def split(folder, name, number, targets):
    """Training and test rows: the standard splits where there are some, 90/10 shuffles otherwise."""
    rows = np.arange(len(targets))
    for path in (folder / "uci_splits" / f"{name}.txt.gz", folder / "tables" / f"{name}.splits.txt.gz"):
        if path.exists():
            line = gzip.decompress(path.read_bytes()).decode().splitlines()[number]
            test = np.array(line.split(), float).astype(int)
            return np.setdiff1d(rows, test), test
    from sklearn.model_selection import ShuffleSplit, StratifiedShuffleSplit

    kind = StratifiedShuffleSplit if name in CLASSIFICATION else ShuffleSplit
    return list(kind(10, test_size=0.1, random_state=0).split(rows, targets))[number]


# Each regressor gives (log-densities, draws or (mean, std), ends of 90 % intervals by kind).


def normal(mean, std, y):
    std = np.maximum(std, _LEAST)
    z = stats.norm.ppf(0.95)
    scaled = (y - mean) / std
    crps = std * (
        scaled * (2 * stats.norm.cdf(scaled) - 1) + 2 * stats.norm.pdf(scaled) - 1 / np.sqrt(np.pi)
    )
    return {
        "nlpd": -stats.norm.logpdf(y, mean, std).mean(),
        "crps": crps.mean(),
        "rmse": np.sqrt(np.mean((y - mean) ** 2)),
        "coverage": np.mean(np.abs(scaled) <= z),
        "width": np.mean(2 * z * std),
    }


def of_quantiles(levels, quantiles, mean, y):
    """Scores of a distribution known by its quantiles; it has no density, so no NLPD."""
    error = y[:, None] - quantiles
    pinball = np.maximum(levels * error, (levels - 1) * error)
    low, high = (quantiles[:, np.argmin(np.abs(levels - level))] for level in (0.05, 0.95))
    return {
        "nlpd": None,
        "crps": 2 * np.mean(pinball),
        "rmse": np.sqrt(np.mean((y - mean) ** 2)),
        "coverage": np.mean((low <= y) & (y <= high)),
        "width": np.mean(high - low),
    }


def ours(effort):
    def run(x, y, new, new_y):
        import partialbayes as pb

        model = pb.PartialBNNRegressor(effort=effort, random_state=0)
        begin = time.process_time(), time.time()
        model.fit(x, y)
        spent = {"fit_cpu": time.process_time() - begin[0], "fit_wall": time.time() - begin[1]}
        predictive = model.predictive(new)
        intervals = {
            "": predictive.interval(0.9),
            "conformal_": model.predict_interval(new, 0.9, method="conformal"),
            "centered_": model.predict_interval(new, 0.9, method="centered"),
        }
        found = {}
        for name, (low, high) in intervals.items():
            found[f"{name}coverage"] = np.mean((low <= new_y) & (new_y <= high))
            found[f"{name}width"] = np.mean(high - low)
        return {
            "nlpd": -float(np.mean(predictive.log_density(new_y))),
            "crps": float(pb.metrics.crps(predictive, new_y)),
            "rmse": np.sqrt(np.mean((new_y - predictive.mean) ** 2)),
            **found,
            **spent,
        }

    return run


def bayesian_ridge(x, y, new, new_y):
    from sklearn.linear_model import BayesianRidge
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    model = make_pipeline(StandardScaler(), BayesianRidge()).fit(x, y)
    return normal(*model.predict(new, return_std=True), new_y)


def trees(kind):
    """Mean and variance by the law of total variance over trees and the training rows in a leaf."""

    def run(x, y, new, new_y):
        import sklearn.ensemble

        model = getattr(sklearn.ensemble, kind)(
            n_estimators=300, min_samples_leaf=2, n_jobs=1, random_state=0
        ).fit(x, y)
        known, wanted = model.apply(x), model.apply(new)
        means, squares = [], []
        for tree in range(known.shape[1]):
            size = known[:, tree].max() + 1
            count = np.maximum(np.bincount(known[:, tree], minlength=size), 1)
            means.append((np.bincount(known[:, tree], y, size) / count)[wanted[:, tree]])
            squares.append((np.bincount(known[:, tree], y**2, size) / count)[wanted[:, tree]])
        mean = np.mean(means, axis=0)
        return normal(mean, np.sqrt(np.maximum(np.mean(squares, axis=0) - mean**2, 0.0)), new_y)

    return run


def gaussian_process(x, y, new, new_y):
    if len(x) > 2000:
        return None
    from sklearn.gaussian_process import GaussianProcessRegressor
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel, WhiteKernel
    from sklearn.preprocessing import StandardScaler

    scaler = StandardScaler().fit(x)
    kernel = ConstantKernel(1.0) * RBF(np.ones(x.shape[1])) + WhiteKernel(0.1)
    model = GaussianProcessRegressor(kernel, random_state=0).fit(scaler.transform(x), y)
    return normal(*model.predict(scaler.transform(new), return_std=True), new_y)


def ngboost(x, y, new, new_y):
    from ngboost import NGBRegressor

    model = NGBRegressor(verbose=False, random_state=0).fit(x, y)
    law = model.pred_dist(new).params
    return normal(law["loc"], law["scale"], new_y)


def catboost(x, y, new, new_y):
    from catboost import CatBoostRegressor

    model = CatBoostRegressor(
        loss_function="RMSEWithUncertainty", verbose=False, random_seed=0, thread_count=1,
        allow_writing_files=False,
    ).fit(x, y)  # fmt: skip
    mean, variance = model.predict(new).T
    return normal(mean, np.sqrt(variance), new_y)


def realmlp(x, y, new, new_y):
    from pytabkit import RealMLP_TD_Regressor

    levels = np.round(np.arange(0.05, 0.96, 0.05), 2)
    name = "multi_pinball(" + ",".join(map(str, levels)) + ")"
    model = RealMLP_TD_Regressor(
        device="cpu", random_state=0, n_threads=1, train_metric_name=name, val_metric_name=name
    ).fit(x, y)
    quantiles = np.sort(np.asarray(model.predict(new)), axis=1)
    return of_quantiles(levels, quantiles, quantiles.mean(axis=1), new_y)


REGRESSORS = {
    "ours": ours("default"),
    "ours, fast": ours("fast"),
    "Bayesian ridge": bayesian_ridge,
    "random forest": trees("RandomForestRegressor"),
    "extra trees": trees("ExtraTreesRegressor"),
    "GP": gaussian_process,
    "NGBoost": ngboost,
    "CatBoost": catboost,
    "RealMLP, quantiles": realmlp,
}


def of_classes(probabilities, labels):
    probabilities = np.clip(probabilities, 1e-7, 1.0)
    probabilities = probabilities / probabilities.sum(axis=1, keepdims=True)
    confidence, right = probabilities.max(axis=1), probabilities.argmax(axis=1) == labels
    bins = np.minimum((confidence * 15).astype(int), 14)
    gaps = np.bincount(bins, right - confidence, 15)
    return {
        "nlpd": -np.mean(np.log(probabilities[np.arange(len(labels)), labels])),
        "ece": np.abs(gaps).sum() / len(labels),
        "accuracy": right.mean(),
    }


def our_classifier(effort):
    def run(x, y, new, new_y):
        import partialbayes as pb

        model = pb.PartialBNNClassifier(effort=effort, random_state=0)
        begin = time.process_time(), time.time()
        model.fit(x, y)
        spent = {"fit_cpu": time.process_time() - begin[0], "fit_wall": time.time() - begin[1]}
        sets = model.predict_set(new, 0.9)
        covered = sets[np.arange(len(new_y)), new_y].mean()
        scores = of_classes(model.predict_proba(new), new_y)
        return {
            **scores,
            "conformal_coverage": covered,
            "conformal_width": sets.sum(axis=1).mean(),
            **spent,
        }

    return run


def classifier(make, most_rows=None):
    def run(x, y, new, new_y):
        if most_rows is not None and len(x) > most_rows:
            return None
        return of_classes(make().fit(x, y).predict_proba(new), new_y)

    return run


def _logistic():
    from sklearn.linear_model import LogisticRegressionCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(
        StandardScaler(), LogisticRegressionCV(Cs=8, scoring="neg_log_loss", max_iter=500)
    )


def _forest(kind):
    def make():
        import sklearn.ensemble

        return getattr(sklearn.ensemble, kind)(
            n_estimators=300, min_samples_leaf=2, n_jobs=1, random_state=0
        )

    return make


def _gp_classifier():
    from sklearn.gaussian_process import GaussianProcessClassifier
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), GaussianProcessClassifier(ConstantKernel(1.0) * RBF(3.0)))


def _ngboost_classifier():
    from ngboost import NGBClassifier
    from ngboost.distns import k_categorical

    class Classifier:
        def fit(self, x, y):
            self.model = NGBClassifier(
                Dist=k_categorical(int(y.max()) + 1), verbose=False, random_state=0
            ).fit(x, y)
            return self.model

    return Classifier()


def _catboost_classifier():
    from catboost import CatBoostClassifier

    return CatBoostClassifier(verbose=False, random_seed=0, thread_count=1, allow_writing_files=False)


def _realmlp_classifier():
    from pytabkit import RealMLP_TD_Classifier

    return RealMLP_TD_Classifier(device="cpu", random_state=0, n_threads=1)


CLASSIFIERS = {
    "ours": our_classifier("default"),
    "ours, fast": our_classifier("fast"),
    "logistic regression": classifier(_logistic),
    "random forest": classifier(_forest("RandomForestClassifier")),
    "extra trees": classifier(_forest("ExtraTreesClassifier")),
    "GP": classifier(_gp_classifier, most_rows=1000),
    "NGBoost": classifier(_ngboost_classifier),
    "CatBoost": classifier(_catboost_classifier),
    "RealMLP": classifier(_realmlp_classifier),
}
_NEEDS = {"ours": "partialbayes", "NGBoost": "ngboost", "CatBoost": "catboost", "RealMLP": "pytabkit"}


def is_there(method):
    """Whether the package of a method is installed."""
    package = next((package for name, package in _NEEDS.items() if method.startswith(name)), "sklearn")
    return importlib.util.find_spec(package) is not None


def run(arguments):
    """Run what is asked for and not there yet."""
    path = Path(arguments.results)
    lines = path.read_text().splitlines() if path.exists() else []
    done = {(line["method"], line["table"], line["split"]) for line in map(json.loads, lines)}
    for number in range(arguments.splits):
        for table in arguments.tables or [*REGRESSION, *CLASSIFICATION]:
            methods = CLASSIFIERS if table in CLASSIFICATION else REGRESSORS
            for method in arguments.methods or methods:
                if method not in methods or (method, table, number) in done or not is_there(method):
                    continue
                x, y = read(Path(arguments.data), table)
                train, test = split(Path(arguments.data), table, number, y)
                if table not in CLASSIFICATION:
                    y = (y - y[train].mean()) / y[train].std()
                begin = time.process_time(), time.time()
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    scores = methods[method](x[train], y[train], x[test], y[test])
                if scores is None:
                    continue
                result = {
                    **{"method": method, "table": table, "split": number, "rows": len(train)},
                    **{"columns": x.shape[1], "cpu": time.process_time() - begin[0]},
                    "wall": time.time() - begin[1],
                    **{name: None if value is None else float(value) for name, value in scores.items()},
                }
                with path.open("a") as file:
                    file.write(json.dumps(result) + "\n")
                shown = {k: round(v, 4) if isinstance(v, float) else v for k, v in result.items()}
                print(json.dumps(shown), flush=True)


def ranks(frame, score):
    """Mean score by table and method, and mean ranks over the tables that all of the methods have."""
    means = frame.pivot_table(index="table", columns="method", values=score)
    methods = [name for name in means if means[name].notna().all()]
    mean_ranks = means[methods].rank(axis=1, ascending=score != "accuracy").mean()
    return means, mean_ranks.sort_values()


def report(arguments):
    """Write docs/faceoff.md and its pictures."""
    frame = pd.DataFrame(map(json.loads, Path(arguments.results).read_text().splitlines()))
    # Means over different splits could not be compared: a method counts on a table if it has all the
    # splits that ours has.
    ours = frame.loc[frame.method == "ours", ["table", "split"]]
    frame = every = frame.merge(ours)
    counts = frame.groupby(["method", "table"]).split.transform("nunique")
    frame = frame[counts == frame.table.map(ours.groupby("table").split.nunique())]
    docs = HERE.parent / "docs"
    parts = []
    for kind, tables, scores in (
        ("regression", REGRESSION, ("crps", "nlpd", "rmse")),
        ("classification", CLASSIFICATION, ("nlpd", "ece", "accuracy")),
    ):
        own = frame[frame.table.isin(tables)]
        if own.empty:
            continue
        parts.append(f"## {kind.capitalize()}\n")
        for score in scores:
            means, mean_ranks = ranks(own, score)
            order = [table for table in tables if table in means.index]
            title = _TITLES[score]
            parts.append(f"### {title}\n\n{_table(means, mean_ranks, order, score)}")
            if score == scores[0]:
                _picture(mean_ranks, len(order), docs / "figures" / f"faceoff_{kind}.png", title)
                parts.append(f"![Mean ranks, {kind}](figures/faceoff_{kind}.png)\n")
        once = _first_splits(every[every.table.isin(tables)])
        if not once.empty:
            score = scores[0]
            means, mean_ranks = ranks(once, score)
            order = [table for table in tables if table in means.index]
            means = means.drop(columns=[name for name in means if name not in mean_ranks])
            shown = _table(means, mean_ranks, order, score)
            parts.append(f"### {_TITLES[score]}, first splits of the tables RealMLP ran on\n\n{shown}")
        mine = own[own.method == "ours"].groupby("table").mean(numeric_only=True)
        names = [
            "rows",
            "coverage",
            "width",
            "conformal_coverage",
            "conformal_width",
            "centered_coverage",
            "centered_width",
            "fit_cpu",
            "fit_wall",
        ]
        names = [name for name in names if name in mine and mine[name].notna().any()]
        lines = ["| table | " + " | ".join(names) + " |", "| --- |" + " ---: |" * len(names)]
        for table in [table for table in tables if table in mine.index]:
            found = (mine.loc[table, name] for name in names)
            shown = ("–" if np.isnan(value) else f"{value:.3g}" for value in found)
            lines.append(f"| {table} | " + " | ".join(shown) + " |")
        lines.append("| mean | " + " | ".join(f"{mine[name].mean():.3g}" for name in names) + " |")
        parts.append("### Ours: intervals of 90 % and seconds\n\n" + "\n".join(lines) + "\n")
    head = HEAD.format(splits=_splits(ours), earlier=_earlier(frame))
    (docs / "faceoff.md").write_text(head + "\n" + "\n".join(parts))


def _table(means, mean_ranks, order, score):
    """The scores of each table by method, and the mean ranks."""
    listed = [*mean_ranks.index, *(name for name in means if name not in mean_ranks.index)]
    lines = ["| table | " + " | ".join(listed) + " |", "| --- |" + " ---: |" * len(listed)]
    for table in order:
        row = means.loc[table, listed]
        best = row.max() if score == "accuracy" else row.min()
        shown = ("–" if np.isnan(v) else f"**{v:.3f}**" if v == best else f"{v:.3f}" for v in row)
        lines.append(f"| {table} | " + " | ".join(shown) + " |")
    shown = (f"{mean_ranks[name]:.2f}" if name in mean_ranks else "" for name in listed)
    lines.append("| mean rank | " + " | ".join(shown) + " |")
    return "\n".join(lines) + "\n"


def _first_splits(frame):
    """The first split of the tables that RealMLP ran on; it takes too long for more."""
    frame = frame[frame.split == 0]
    return frame[frame.table.isin(frame[frame.method.str.startswith("RealMLP")].table)]


def _splits(ours):
    """How many splits the tables have, in words."""
    counts = ours.groupby("table").split.nunique()
    parts = (f"{count} of {', '.join(own.index)}" for count, own in counts.groupby(counts))
    return "; ".join(parts)


def _earlier(frame):
    """Which results of ours are of defaults that have changed since, marked by hand, in words."""
    if "earlier" not in frame:
        return ""
    old = frame[frame.earlier.eq(True)].groupby("method").table.unique()
    parts = "; ".join(f"{method}: {', '.join(tables)}" for method, tables in old.items())
    return f"\nOf earlier defaults, not run again since they changed: {parts}.\n" if parts else ""


def _picture(mean_ranks, tables, path, title):
    """Mean ranks on a line, and the critical difference of Nemenyi's test at 5 %."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    count = len(mean_ranks)
    critical = (
        stats.studentized_range.ppf(0.95, count, np.inf)
        / np.sqrt(2)
        * np.sqrt(count * (count + 1) / (6 * tables))
    )
    figure, axes = plt.subplots(figsize=(7, 0.35 * count + 1))
    for place, (name, rank) in enumerate(mean_ranks.items()):
        axes.plot([rank, rank + critical], [place, place], color="0.8", lw=4, solid_capstyle="butt")
        axes.plot(rank, place, "o", color="C0" if name.startswith("ours") else "0.3")
    axes.set_yticks(range(count), mean_ranks.index)
    axes.invert_yaxis()
    axes.set_xlabel(
        f"mean rank in {title} over {tables} tables; bars: critical difference (Nemenyi, 5 %)"
    )
    axes.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("command", choices=["run", "report"])
    parser.add_argument("--data", default=os.environ.get("FACEOFF_DATA", "../shared/data"))
    parser.add_argument("--results", default=RESULTS)
    parser.add_argument("--splits", type=int, default=1)
    parser.add_argument("--tables", nargs="*")
    parser.add_argument("--methods", nargs="*")
    chosen = parser.parse_args()
    {"run": run, "report": report}[chosen.command](chosen)
