"""What can go wrong with a run folder."""


class RunError(RuntimeError):
    """A run folder cannot be used as requested. The message names a way out."""


class RunBusy(RunError):
    """Another process has locked the folder."""


class RunStopped(RunError):
    """A write failed, usually because the disk is full. Everything saved before is intact."""


class Diverged(RunStopped):
    """All members of a run have diverged. The same run would diverge again."""
