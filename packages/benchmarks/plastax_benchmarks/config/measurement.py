"""What is measured during a run."""

from dataclasses import dataclass

from .._settings import Settings, setting


@dataclass(frozen=True)
class Measurement(Settings):
    """What is measured in a run, and how often."""

    checkpoint_every: int = 1
    """Number of tasks between checkpoints."""
    diagnose_every: int = setting(0)
    """Spectra and plasticity reports at the start and the end of every N-th task (0: never)."""
    diagnose_size: int = 2000
    """Number of rows for spectra and reports; all rows by default."""


@dataclass(frozen=True)
class TaskMeasurement(Measurement):
    """What is measured on a stream of supervised tasks."""

    eval_size: int = 2000
    """Number of held-out rows for the measurements after each task; all rows by default."""
    evaluate_previous: bool = False
    """Whether to measure the accuracy on the previous task, too."""
    yardstick: bool = False
    """Whether to also train a new network on each task, for comparison (takes twice the time)."""
    monitor_every: int = setting(0)
    """Units, ranks and sharpness at the start of every N-th task, on 256 of its training rows (0: never). The threshold
    of the epsilon-rank is that of plain gradient descent with the learning rate, also with Adam."""
    monitor_score: bool = False
    """Whether the monitor also has the score against new networks: up to 1000 steps for each of four networks."""
    epsilon_rank_every: int = setting(0)
    """Exact epsilon-rank of the GGN at every N-th task switch, on held-out rows of the new task (0: never)."""
    epsilon_rank_rows: int = 200
    """Number of rows for the exact epsilon-rank; fewer if rows times outputs were more than 3000."""

    def __post_init__(self):
        super().__post_init__()
        if self.monitor_score and not self.monitor_every:
            raise ValueError("--monitor-score adds to the numbers of --monitor-every: give that, too")


@dataclass(frozen=True)
class AntMeasurement(Measurement):
    """What is measured on the ant. Each friction is a task. Spectra are those of actor and critic."""

    checkpoint_every: int = 10
    """Number of windows between checkpoints."""
    log_every: int = 8
    """Number of updates in a window. A window is one compiled call, and one line of metrics for each seed."""
    lanczos_order: int = 100
    """Number of Lanczos steps for spectra."""
