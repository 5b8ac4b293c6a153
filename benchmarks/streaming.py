"""`partial_fit` on a stream of 200 batches, beside fitting anew on all the data seen.

The stream does not drift, so that refitting on everything is hard to beat. Times leave out
compilation, which is paid once by `partial_fit` and at several sizes by the refits. How much decay and
how many replays were chosen on the stream of seed 1; those of other seeds are the test.
Run: python benchmarks/streaming.py [seed]
"""

import sys
import time

import numpy as np

import partialbayes as pb

BATCHES, ROWS, DIM = 200, 20, 8


def draw(rng, rows):
    x = rng.normal(size=(rows, DIM))
    y = np.sin(2 * x[:, 0]) + x[:, 1] * x[:, 2] + 0.5 * x[:, 3] + 0.3 * rng.normal(size=rows)
    return x, y


def nlpd(model, x, y):
    return -float(np.mean(model.predictive(x).log_density(y)))


def timed_fit(x, y):
    """The second fit of the same shapes: nothing is compiled in it."""
    pb.PartialBNNRegressor(random_state=0).fit(x, y)
    before = time.perf_counter()
    model = pb.PartialBNNRegressor(random_state=0).fit(x, y)
    return model, time.perf_counter() - before


def main():
    rng = np.random.default_rng(int(sys.argv[1]) if len(sys.argv) > 1 else 0)
    x, y = draw(rng, BATCHES * ROWS)
    test = draw(rng, 2000)
    stream = pb.PartialBNNRegressor(random_state=0, window_size=BATCHES * ROWS)
    warm = pb.PartialBNNRegressor(random_state=0, window_size=BATCHES * ROWS)
    for _ in range(27):  # both of its programs: for few rows, and for enough
        warm.partial_fit(x[:ROWS], y[:ROWS])
    spent = 0.0
    marks = (25, 50, 100, 200)
    print("batches   partial_fit NLPD   refit NLPD   partial_fit s (all so far)   refit s (this one)")
    refits = {}
    for batch in range(1, BATCHES + 1):
        rows = slice((batch - 1) * ROWS, batch * ROWS)
        before = time.perf_counter()
        stream.partial_fit(x[rows], y[rows])
        spent += time.perf_counter() - before
        if batch in marks:
            seen = slice(0, batch * ROWS)
            refit, refits[batch] = timed_fit(x[seen], y[seen])
            print(
                f"{batch:7d}   {nlpd(stream, *test):16.3f}   {nlpd(refit, *test):10.3f}"
                f"   {spent:26.2f}   {refits[batch]:18.2f}"
            )
    every = np.interp(np.arange(1, BATCHES + 1), list(refits), list(refits.values())).sum()
    print(f"refitting after every batch: about {every:.0f} s, {every / spent:.0f} times partial_fit")


if __name__ == "__main__":
    main()
