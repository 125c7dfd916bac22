"""Run folders: what a training wrote survives a kill at any moment, and the same command goes on from there."""

from ._checkpoints import read_checkpoint as read_checkpoint
from ._errors import RunError as RunError, RunStopped as RunStopped
from ._files import write_atomic as write_atomic
from ._folder import RunFolder as RunFolder, open_run as open_run
from ._interrupts import hold_interrupts as hold_interrupts
from ._streams import read_stream as read_stream
