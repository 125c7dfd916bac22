"""What can go wrong with a run folder."""


class RunError(RuntimeError):
    """A run folder cannot be used as asked; the message names the way out."""


class RunStopped(RunError):
    """Something could not be written, usually for a full disk; what was saved before is intact."""
