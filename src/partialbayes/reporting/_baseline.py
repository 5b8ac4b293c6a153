"""Score a baseline that predicts the distribution of the training targets for every row."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from partialbayes.metrics import sample_crps

_LEVELS = 199


class Baseline(NamedTuple):
    """A summary of the distribution of the training targets.

    Attributes:
        mean: Mean of real targets.
        std: Standard deviation of real targets.
        quantiles: Quantiles of real targets, at evenly spaced levels between 0 and 1; empty for classes.
        counts: Number of rows of each class; empty for real targets.
        log_mean: Mean of the logarithms, if the model was trained on these; else None.
        log_std: Standard deviation of the logarithms; else None.
    """

    mean: float = 0.0
    std: float = 1.0
    quantiles: tuple[float, ...] = ()
    counts: tuple[int, ...] = ()
    log_mean: float | None = None
    log_std: float | None = None

    @classmethod
    def of_numbers(cls, targets: Any, log: bool = False) -> Baseline:
        """Summarize real training targets.

        Args:
            targets: The targets.
            log: Whether the model was trained on their logarithms.

        Returns:
            The baseline.
        """
        array = np.asarray(targets, float)
        levels = (np.arange(_LEVELS) + 0.5) / _LEVELS
        own = cls(float(array.mean()), float(array.std()), tuple(np.quantile(array, levels).tolist()))
        if not log:
            return own
        logs = np.log(array)
        return own._replace(log_mean=float(logs.mean()), log_std=float(logs.std()))

    @classmethod
    def of_classes(cls, labels: Any, num_classes: int) -> Baseline:
        """Summarize training labels.

        Args:
            labels: The labels, numbered from 0.
            num_classes: Number of classes.

        Returns:
            The baseline.
        """
        return cls(counts=tuple(np.bincount(labels, minlength=num_classes).tolist()))

    def scores(self, targets: Any) -> dict[str, float]:
        """Score the baseline on targets.

        Args:
            targets: The targets.

        Returns:
            The scores, by the names that `metrics.evaluate` uses.
        """
        if self.counts:
            return self._class_scores(np.asarray(targets, int))
        observed = np.asarray(targets, float)
        quantiles = np.asarray(self.quantiles)
        low, high = np.quantile(quantiles, [0.05, 0.95])
        equal = np.full(len(quantiles), -np.log(len(quantiles)), np.float32)
        # Relative to the mean: single precision has too few digits far from zero.
        samples = np.broadcast_to(
            (quantiles - self.mean).astype(np.float32)[:, None], (len(quantiles), len(observed))
        )
        crps = sample_crps(samples, equal, (observed - self.mean).astype(np.float32))
        spread = np.sum((observed - observed.mean()) ** 2)
        return {
            "nlpd": float(np.mean(self._negative_log_density(observed))),
            "rmse": float(np.sqrt(np.mean((observed - self.mean) ** 2))),
            "mae": float(np.mean(np.abs(observed - np.median(quantiles)))),
            "r2": float(1.0 - np.sum((observed - self.mean) ** 2) / spread)
            if spread > 0
            else float("nan"),
            "crps": float(np.mean(np.asarray(crps))),
            "coverage": float(np.mean((observed >= low) & (observed <= high))),
            "width": float(high - low),
        }

    def _negative_log_density(self, observed: Any) -> Any:
        def normal(values: Any, mean: float, std: float) -> Any:
            return 0.5 * ((values - mean) / std) ** 2 + np.log(std) + 0.5 * np.log(2.0 * np.pi)

        if self.log_mean is None or self.log_std is None:
            return normal(observed, self.mean, max(self.std, 1e-12))
        logs = np.log(observed)
        return normal(logs, self.log_mean, max(self.log_std, 1e-12)) + logs

    def _class_scores(self, labels: Any) -> dict[str, float]:
        shares = (np.asarray(self.counts) + 1.0) / (sum(self.counts) + len(self.counts))
        own = np.eye(len(shares))[labels]
        return {
            "nlpd": float(-np.mean(np.log(shares[labels]))),
            "accuracy": float(np.mean(labels == shares.argmax())),
            "brier": float(np.mean(np.sum((shares - own) ** 2, axis=1))),
        }
