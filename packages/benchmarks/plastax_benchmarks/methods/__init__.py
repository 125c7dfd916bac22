"""Methods by name. What they are is in `catalog`, which needs no jax; how they are made is in `recipes`."""
