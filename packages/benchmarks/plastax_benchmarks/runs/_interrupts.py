"""Ctrl-C waits for what must not be cut in two."""

import contextlib
import signal
import threading
from collections.abc import Iterator


SIGNALS = (signal.SIGINT, signal.SIGTERM)


class Held:
    """Whether Ctrl-C was pressed meanwhile."""

    requested: bool = False


@contextlib.contextmanager
def hold_interrupts() -> Iterator[Held]:
    """Within the block Ctrl-C is only noted (`held.requested`); `KeyboardInterrupt` comes at its end.

    A task's rows and its checkpoint belong together: `with hold_interrupts(): run.append(...); run.save(...)`. The same
    goes for SIGTERM where somebody handles it. Other threads than the main one never see signals, so that there is
    nothing to hold.
    """
    held = Held()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    # What is ignored or left to the system on purpose stays so.
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
            # The handler that was there before decides: usually it raises KeyboardInterrupt, an outer block notes it.
            before[signal.Signals(arrived[0])](arrived[0], None)
