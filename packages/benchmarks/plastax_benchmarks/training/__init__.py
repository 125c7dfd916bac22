"""Training on a stream of tasks: compiled programs, and the host loop around them."""
