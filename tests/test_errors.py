"""Wrong input: each message names the argument and the remedy."""

import numpy as np
import pytest

import partialbayes as pb

X = np.random.default_rng(0).normal(size=(20, 2))
Y = (X[:, 0] > 0).astype(int)
NETWORK = pb.mlp([2, 4, 1])


def fit(likelihood, data, network=NETWORK, **settings):
    model = pb.partial_bnn(network, "layers/0/*", likelihood)
    algorithm = pb.ohsmc(model, num_particles=4)
    return pb.fit(algorithm, data, **({"epochs": 1} | settings))


def with_value(array, value):
    array = np.array(array, float)
    array[3] = value
    return array


@pytest.mark.parametrize(
    ("likelihood", "data", "settings", "message"),
    [
        (pb.bernoulli(), (X, Y[:-1]), {}, "20 rows of inputs but 19 of targets"),
        (
            pb.bernoulli(),
            (with_value(X, np.nan), Y),
            {},
            r"inputs contains NaN .*row 3.*drop",
        ),
        (pb.bernoulli(), (with_value(X, np.inf), Y), {}, "inputs contains an infinite value"),
        (pb.gaussian(), (X, with_value(Y, np.nan)), {}, "targets contains NaN"),
        (pb.bernoulli(), (X, Y + 1), {}, r"labels from 1 to 2, but there are 2 classes, 0 to 1"),
        (pb.bernoulli(), (X, Y + 0.5), {}, r"some are fractions \(1.5\); .* use gaussian"),
        (pb.bernoulli(), (X, np.array(["a", "b"] * 10)), {}, "targets must be integer class labels"),
        (pb.bernoulli(), (X, np.stack([Y, Y], 1)), {}, r"targets have shape \(20, 2\)"),
        (pb.gaussian(), (X, np.stack([Y, Y], 1)), {}, r"targets have shape \(20, 2\) .* last layer"),
        (pb.gaussian(), (X, np.array(["a"] * 20)), {}, "targets must be numbers"),
        (pb.categorical(), (X, Y), {}, "at least two classes. For one logit use bernoulli"),
        (pb.bernoulli(), (X, Y), {"batch_size": 21}, "batch_size is 21, but there are only 20 rows"),
        (pb.bernoulli(), (X, Y), {"batch_size": 0}, "batch_size must be a whole number of at least 1"),
        (pb.bernoulli(), (X, Y), {"epochs": 0}, "epochs must be a whole number"),
        (pb.bernoulli(), (X, Y), {"validation": (X, Y + 1)}, "validation: targets hold labels"),
        (pb.bernoulli(), (X, Y), {"validation": X}, r"validation must be a pair \(inputs, targets\)"),
        (pb.bernoulli(), (X[:0], Y[:0]), {}, "has no rows"),
        (pb.bernoulli(), (X.astype(str), Y), {}, "inputs must be numbers, not <U.*encode text"),
        (pb.bernoulli(), (X, Y.tolist()), {}, "targets must be an array .* numpy.asarray"),
        (pb.bernoulli(), (X, Y, Y), {}, r"must be a pair \(inputs, targets\), not a tuple of 3"),
        (pb.bernoulli(), (X[:, :1], Y), {}, r"this network takes \(examples, 2\)"),
    ],
)
def test_data(likelihood, data, settings, message):
    with pytest.raises(ValueError, match=message):
        fit(likelihood, data, **settings)


def test_labels_above_the_classes_of_the_network():
    with pytest.raises(ValueError, match="labels from 0 to 5, but there are 3 classes"):
        fit(pb.categorical(), (X, np.arange(20) % 6), network=pb.mlp([2, 4, 3]))


def test_pattern_that_matches_nothing_lists_the_nearest_paths():
    with pytest.raises(ValueError, match=r"'layer/0/\*\*' matches no weight; .*'layers/0/"):
        pb.partial_bnn(NETWORK, "layer/0/**", pb.bernoulli())


def test_nothing_selected():
    with pytest.raises(ValueError, match="selects no weight at all"):
        pb.partial_bnn(NETWORK, lambda leaf: False, pb.bernoulli())


@pytest.mark.parametrize("number", [0, -3, True])
def test_number_of_particles(number):
    model = pb.partial_bnn(NETWORK, "layers/0/*", pb.bernoulli())
    with pytest.raises(ValueError, match="num_particles must be a whole number of at least 1"):
        pb.ohsmc(model, num_particles=number)


@pytest.mark.parametrize("value", [0.0, -1.0, float("nan"), float("inf")])
def test_numbers_that_must_be_positive(value):
    for build in (pb.kernels.random_walk, pb.kernels.ornstein_uhlenbeck, pb.gaussian, pb.learned):
        with pytest.raises(ValueError, match="must be positive and finite"):
            build(value)
    with pytest.raises(ValueError, match="scale must be positive and finite"):
        pb.priors.normal(scale=value)


@pytest.mark.parametrize(
    "kernel",
    [
        pb.kernels.random_walk(0.1),
        pb.kernels.ornstein_uhlenbeck(0.1),
        pb.kernels.forgetting(),
        pb.kernels.guided_langevin(0.1),
        pb.kernels.unadjusted_langevin(0.1),
    ],
)
def test_kernels_that_change_the_target_are_refused_on_a_path(kernel):
    model = pb.partial_bnn(NETWORK, "layers/0/*", pb.bernoulli())
    for build in (
        lambda: pb.smc(model, kernel=kernel),
        lambda: pb.sgsmc(model, kernel=kernel),
        lambda: pb.samplers.tempered_smc(kernel=kernel),
    ):
        with pytest.raises(
            ValueError, match=r"needs a kernel that leaves its target invariant.* Use random_walk"
        ):
            build()


def test_forgetting_needs_a_prior_with_a_variance():
    heavy = pb.priors.student_t(degrees_of_freedom=1.5)
    model = pb.partial_bnn(NETWORK, "layers/0/*", pb.gaussian(), heavy)
    with pytest.raises(ValueError, match="needs a prior with a finite variance"):
        pb.ohsmc(model, kernel=pb.kernels.forgetting("diagonal"))
    # The default kernel looks at that variance too.
    algorithm = pb.smc(model, num_particles=16, schedule=pb.annealing.tempering([0.5, 1.0]))
    trained = pb.fit(algorithm, (X, X[:, 0]), epochs=1)
    assert np.isfinite(trained.posterior.particles.values).all()
