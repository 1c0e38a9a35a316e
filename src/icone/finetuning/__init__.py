"""Training an encoder with labels: a linear layer on its features, and as many of its layers as are not frozen."""
