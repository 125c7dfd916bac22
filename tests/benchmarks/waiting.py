"""Waiting for other processes."""

import time


def wait_for(condition, seconds=180):
    """Returns when the condition is true, and fails if it is still false after that time."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.02)
