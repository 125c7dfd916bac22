"""SGD steps with batch size 1 for dense networks, with fewer passes over the weights."""

from .steps import applies as applies, take_steps as take_steps
