"""The theory of spectral collapse: which directions gradient descent learns within a step budget."""
