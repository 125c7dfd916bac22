"""Counts compilations, for tests of what is compiled once."""

import contextlib

import jax


@contextlib.contextmanager
def compilations():
    """A list with an entry for each program that is compiled within the block."""
    count = []

    def listen(event, seconds, **_):
        if event == "/jax/core/compile/backend_compile_duration":
            count.append(seconds)

    jax.monitoring.register_event_duration_secs_listener(listen)
    try:
        yield count
    finally:
        jax.monitoring.unregister_event_duration_listener(listen)
