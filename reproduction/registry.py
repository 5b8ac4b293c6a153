"""The experiments of the paper, by name: to add one is to add an object here."""

from reproduction.experiments.crescent import CRESCENT
from reproduction.experiments.mnist import MNIST
from reproduction.experiments.tabular import TABLES, TWO_MOONS, WAVE

EXPERIMENTS = {one.name: one for one in (CRESCENT, WAVE, TWO_MOONS, TABLES, MNIST)}
"""In the order of the paper, and of the page of all results."""
