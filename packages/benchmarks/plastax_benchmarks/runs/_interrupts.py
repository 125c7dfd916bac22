"""Delays Ctrl-C during operations that must not be interrupted, and treats SIGTERM like it."""

import contextlib
import signal
import threading
from collections.abc import Iterator


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Held:
    """Whether Ctrl-C was pressed in the block."""

    requested: bool = False


@contextlib.contextmanager
def hold_interrupts() -> Iterator[Held]:
    """Within the block Ctrl-C is only recorded (`held.requested`). `KeyboardInterrupt` is raised at its end.

    A task's rows and its checkpoint belong together: `with hold_interrupts(): run.append(...); run.save(...)`. SIGTERM
    is delayed, too, if it has a handler. Only the main thread receives signals, so there is nothing to delay in other
    threads.
    """
    held = Held()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    # Signals that are ignored, or left to the system, stay so.
    before = {number: handler for number in SIGNALS if callable(handler := signal.getsignal(number))}
    arrived: list[int] = []

    def note(number, frame) -> None:
        held.requested = True
        arrived.append(number)

    for number in before:
        signal.signal(number, note)
    try:
        yield held
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        if arrived:
            # The previous handler decides: usually it raises KeyboardInterrupt; that of an outer block records it.
            before[signal.Signals(arrived[0])](arrived[0], None)


@contextlib.contextmanager
def terminate_like_interrupt() -> Iterator[None]:
    """Treats SIGTERM, which cluster managers send to stop a job, like Ctrl-C."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:  # Not in the main thread, where the caller handles signals.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
