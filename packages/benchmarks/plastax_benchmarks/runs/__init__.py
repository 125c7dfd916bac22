"""Run folders: training can be killed at any moment, and the same command resumes it."""

from ._checkpoints import read_checkpoint as read_checkpoint
from ._errors import (
    Diverged as Diverged,
    RunBusy as RunBusy,
    RunError as RunError,
    RunStopped as RunStopped,
)
from ._files import write_atomic as write_atomic
from ._folder import RunFolder as RunFolder, open_run as open_run
from ._interrupts import (
    hold_interrupts as hold_interrupts,
    terminate_like_interrupt as terminate_like_interrupt,
)
from ._lock import take_lock as take_lock
from ._reports import ReportPlace as ReportPlace, swept_name as swept_name
from ._settings import versions as versions
from ._streams import read_stream as read_stream
from ._trees import unflatten as unflatten
