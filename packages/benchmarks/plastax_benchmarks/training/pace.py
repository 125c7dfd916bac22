"""How much to train between two looks at the clock."""

import time


class Pace:
    """Blocks to train in one call, so that it takes a few seconds: long enough to cost nothing, short enough to see.

    The numbers of a run do not depend on it.
    """

    def __init__(self, seconds: float = 3.0):
        self.seconds = seconds
        self.rate: float | None = None

    def blocks(self, left: int) -> int:
        """How many of the blocks that are left to train now. One at first, which compiles the program."""
        return min(left, 1 if self.rate is None else max(1, int(self.rate * self.seconds)))

    def measure(self, blocks: int, begin: float) -> None:
        """Takes note of how long some blocks took."""
        self.rate = blocks / max(time.perf_counter() - begin, 1e-6)
