"""Where the numbers of a run go besides its folder: TensorBoard or Weights & Biases."""
