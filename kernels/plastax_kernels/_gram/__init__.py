"""The Gram matrix of features, by XLA and by Triton."""
