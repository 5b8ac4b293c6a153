"""What the scores mean, in words, for the pages that show them."""

EXPLAINED = {
    "nlpd": "negative log predictive density, in nats per example; lower is better",
    "rmse": "root mean squared error of the mean, in units of the target",
    "mae": "mean absolute error of the median, in units of the target",
    "crps": "continuous ranked probability score, in units of the target; lower is better",
    "coverage": "share of targets inside their 90 % intervals; should be near 0.9",
    "width": "mean width of the 90 % intervals, in units of the target",
    "accuracy": "share of examples whose most probable class is right",
    "brier": "squared error of the class probabilities, 0 to 2; lower is better",
    "ece": "expected calibration error, 15 bins; 0 is perfect",
    "classwise_ece": "the same for the probability of every class, averaged",
    "adaptive_ece": "the same over bins of equally many examples",
    "rmse_over_particles": "of each particle by itself, averaged, as in the paper",
    "accuracy_over_particles": "of each particle by itself, averaged, as in the paper",
    "ece_over_particles": "of each particle by itself, averaged, as in the paper",
}
