"""No two uses of randomness share a key, and none has a key that a user splits off."""

import jax
import numpy as np

from partialbayes._engine.streams import Stream, salt, stream_key


def bits(keys):
    return {tuple(one) for one in np.asarray(jax.random.key_data(keys)).reshape(-1, 2).tolist()}


def test_keys_of_a_run_are_its_own():
    key = jax.random.key(3)
    own = salt(key)
    streams = [stream_key(own, stream) for stream in Stream]
    streams += [stream_key(own, stream, number) for stream in Stream for number in range(20)]
    used = set().union(*map(bits, streams))
    assert len(used) == len(streams) == 21 * len(Stream)
    theirs = bits(jax.vmap(lambda number: jax.random.fold_in(key, number))(np.arange(1000)))
    with jax.debug_key_reuse(False):
        theirs |= bits(jax.random.split(key, 1000))
    assert not used & theirs
