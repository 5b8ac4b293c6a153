"""The convolutional network of the paper, and its fast convolutions on a CPU."""
