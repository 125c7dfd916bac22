"""Ctrl-C waits for what must not be cut in two."""

import contextlib
import signal
import threading
from collections.abc import Iterator


class Held:
    """Whether Ctrl-C was pressed meanwhile."""

    requested: bool = False


@contextlib.contextmanager
def hold_interrupts() -> Iterator[Held]:
    """Within the block Ctrl-C is only noted (`held.requested`); `KeyboardInterrupt` comes at its end.

    A task's rows and its checkpoint belong together: `with hold_interrupts(): run.append(...); run.save(...)`. Other
    threads than the main one never see Ctrl-C, so that there is nothing to hold.
    """
    held = Held()
    if threading.current_thread() is not threading.main_thread():
        yield held
        return
    before = signal.getsignal(signal.SIGINT)
    if not callable(before):  # Ignored or left to the system on purpose.
        yield held
        return

    def note(number, frame) -> None:
        held.requested = True

    signal.signal(signal.SIGINT, note)
    try:
        yield held
    finally:
        signal.signal(signal.SIGINT, before)
        if held.requested:
            # The handler that was there before decides: usually it raises KeyboardInterrupt, an outer block notes it.
            before(signal.SIGINT, None)
