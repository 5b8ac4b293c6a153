"""Every method of the library on two moons: one table, one rule of model selection for all.

Each trains the same network for 100 epochs and returns the posterior with the best validation NLPD;
the scores are of the predictive mixture on test data. Seconds include compilation.
Run: python examples/compare_methods.py [--epochs 100] [--only hmc]
"""

import argparse
import time
from collections.abc import Callable

from sklearn.datasets import make_moons

import partialbayes as pb

# A new method is one line here. Those in FULL_BATCH are defined by all the data at once.
METHODS: dict[str, Callable[[pb.types.Model], pb.types.Algorithm]] = {
    "MAP": lambda model: pb.map_estimate(model),
    "OHSMC": lambda model: pb.ohsmc(model),
    "OHSMC, affine Langevin": lambda model: pb.ohsmc(model, kernel=pb.kernels.affine_langevin()),
    "OHSMC, random walk": lambda model: pb.ohsmc(model, kernel=pb.kernels.random_walk(0.01)),
    "OHSMC, backward": lambda model: pb.algorithms.backward_ohsmc(model),
    "SMC": lambda model: pb.smc(model, num_particles=200),
    "SGSMC": lambda model: pb.sgsmc(model, num_particles=200),
    "SGSMC-HMC": lambda model: pb.two_stage(pb.sgsmc(model, num_particles=200), pb.samplers.hmc()),
    "OHSMC-tempered SMC": lambda model: pb.two_stage(pb.ohsmc(model), pb.samplers.tempered_smc()),
    "MAP-HMC": lambda model: pb.two_stage(pb.map_estimate(model), pb.samplers.hmc()),
    "MAP-HMC, adapted": lambda model: pb.two_stage(
        pb.map_estimate(model), pb.samplers.hmc(step_size=pb.samplers.adapted(), num_leapfrog_steps=10)
    ),
    "MAP-NUTS": lambda model: pb.two_stage(pb.map_estimate(model), pb.samplers.nuts()),
    "MAP-Laplace": lambda model: pb.two_stage(pb.map_estimate(model), pb.samplers.laplace()),
    "MAP-Laplace, diagonal": lambda model: pb.two_stage(
        pb.map_estimate(model), pb.samplers.laplace(covariance="diagonal")
    ),
    "VB, mean field": lambda model: pb.algorithms.mean_field_vb(model),
    "VB, full rank": lambda model: pb.algorithms.full_rank_vb(model),
    "EKF": lambda model: pb.algorithms.ekf(model),
    "SWAG": lambda model: pb.algorithms.swag(model, rank=100, num_warmup=300),
    "SWAG, psi too": lambda model: pb.algorithms.swag(model, rank=100, num_warmup=300, sample_psi=True),
    "SGLD": lambda model: pb.algorithms.sgld(model),
    "SGHMC": lambda model: pb.algorithms.sghmc(model),
    "SVGD": lambda model: pb.algorithms.svgd(model),
    "Particle gradient": lambda model: pb.algorithms.particle_gradient_descent(model),
    "Particle ensemble": lambda model: pb.algorithms.particle_ensemble(model),
    "MC dropout of the prior": lambda model: pb.algorithms.mc_dropout(model),
    "Monte Carlo": lambda model: pb.algorithms.monte_carlo(model),
    "Monte Carlo, bound": lambda model: pb.algorithms.monte_carlo(
        model, objective=pb.algorithms.expected_log_likelihood
    ),
    "Shared ensemble": lambda model: pb.algorithms.shared_ensemble(model),
    "Deep ensemble": lambda model: pb.ensemble(pb.map_estimate(model), 5),
    "MAP, averaged": lambda model: pb.algorithms.averaged(pb.map_estimate(model)),
    "Trajectory of MAP": lambda model: pb.algorithms.trajectory(pb.map_estimate(model), every=20),
    "Trajectory of OHSMC": lambda model: pb.algorithms.trajectory(pb.ohsmc(model), every=20),
    "Ensemble of OHSMC": lambda model: pb.ensemble(pb.ohsmc(model, num_particles=200), 5),
}
FULL_BATCH = {"SMC", "OHSMC, backward", "Monte Carlo"}


def train_by(
    algorithm: pb.types.Algorithm, name: str, epochs: int, train, validation
) -> pb.types.Posterior:
    try:
        return pb.fit(
            algorithm,
            train,
            epochs=epochs,
            batch_size=None if name in FULL_BATCH else 20,
            validation=validation,
        ).posterior
    except pb.errors.TrainingDivergedError as error:
        if error.fit is None:
            raise
        print(f"({name} diverged at step {error.step}; the best before that is scored)")
        return error.fit.posterior


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--only", default="", help="part of the name of the methods to run")
    arguments = parser.parse_args()
    x, y = make_moons(300, noise=0.3, random_state=2)
    train, validation, test = ((x[i : i + 100], y[i : i + 100]) for i in (0, 100, 200))
    model = pb.partial_bnn(pb.mlp([2, 100, 20, 5, 1]), "layers/2/**", pb.bernoulli())

    print(f"{'method':<24}{'NLPD':>8}{'ECE':>8}{'accuracy':>10}{'seconds':>9}")
    for name, build in METHODS.items():
        if arguments.only.lower() not in name.lower():
            continue
        start = time.perf_counter()
        posterior = train_by(build(model), name, arguments.epochs, train, validation)
        nlpd = float(-pb.prediction.log_predictive_density(model, posterior, test).mean())
        seconds = time.perf_counter() - start
        probability = pb.predict(model, posterior, test[0]).mean
        ece = float(pb.metrics.expected_calibration_error(probability, test[1]))
        accuracy = float(pb.metrics.accuracy(probability, test[1]))
        print(f"{name:<24}{nlpd:>8.3f}{ece:>8.3f}{accuracy:>10.2f}{seconds:>9.1f}", flush=True)


if __name__ == "__main__":
    main()
