"""Members of a sweep in one program, against one at a time.

Run with `plastax bench grouping`. A round trains each member alone, one after the other in the same compiled program of
one member, and then all of them in one program. The ratio is how much faster they are together, so that below 1 they
should not share a program. Compilation and startup do not count; a program for all members also saves those. Images
are noise of the right shape, so nothing is downloaded.

Convolutional networks appear twice: trained one after the other inside of one program, as runs do, and side by side
under `vmap`, which runs do not use for them.
"""

from collections.abc import Callable, Iterator
from typing import Any

from plastax_kernels import set_lapack_threads

from ..config import RunConfig, configure
from ..problems.catalog import ImageSettings
from ..training.members import Member
from .output import Conditions, show
from .paper_scale import noise
from .parser import bench_parser
from .timing import ProgressLog, interleaved, ratio


Make = Callable[[int], Callable[[], Any]]
"""From a number of members to a program that trains them for a while."""


def supervised(config: RunConfig, *, side_by_side: bool | None = None) -> Make:
    """A block of steps of each member."""
    from ..problems.load import load_problem, make_problem
    from ..training.replicas import Replicas
    from ..training.task import Trainer

    assert isinstance(config.problem, ImageSettings)
    bundled = config.problem.dataset == "digits"
    problem, data = (
        load_problem(config.problem, None) if bundled else make_problem(config.problem, noise(config.problem.dataset))
    )

    def make(members: int) -> Callable[[], Any]:
        several = [Member(seed, {"weight_decay": 1e-4 * (1 + seed)}) for seed in range(members)]
        replicas = Replicas(Trainer(problem, config), data, several, side_by_side=side_by_side)
        learner = replicas.init(0)
        return lambda: replicas.train(learner, replicas.nothing(), 0, 0, 1)

    return make


def ant(config: RunConfig) -> Make:
    """A window of updates of each member."""
    from ..rl.ant import Ant
    from ..rl.plan import plan_of
    from ..rl.programs import AntPrograms

    environment = Ant(plan_of(config).problem.backend)

    def make(members: int) -> Callable[[], Any]:
        several = [Member(seed, {"weight_decay": 1e-4 * (1 + seed)}) for seed in range(members)]
        programs = AntPrograms(config, environment, several)
        agents = programs.init()
        return lambda: programs.window(agents)

    return make


def workloads() -> Iterator[tuple[str, Make]]:
    """All networks, at laptop scale and at the paper's."""
    yield "MLP, 100 units, batch 1", supervised(configure("permuted-mnist", "laptop", "l2"))
    yield "MLP, 1000 units, batch 1 (paper)", supervised(configure("permuted-mnist", "paper", "l2"))
    images = configure("continual-imagenet", "laptop", "l2")
    yield "ConvNet, batch 10, one by one", supervised(images, side_by_side=False)
    yield "ConvNet, batch 10, side by side", supervised(images, side_by_side=True)
    images = configure("continual-imagenet", "paper", "l2")
    yield "ConvNet, batch 100 (paper), one by one", supervised(images, side_by_side=False)
    yield "ConvNet, batch 100 (paper), side by side", supervised(images, side_by_side=True)
    yield "ant, 64 environments", ant(configure("slippery-ant", "laptop", "l2", log_every=1))


def main(arguments: list[str] | None = None) -> None:
    """Prints a table: how much faster a number of members is in one program."""
    parser = bench_parser("grouping", __doc__)
    parser.add_argument("--rounds", type=int, default=7, help="rounds to take medians over")
    parser.add_argument("--members", type=int, nargs="+", default=[2, 4, 8, 16], help="numbers of members")
    parser.add_argument("--only", default="", help="only workloads whose name contains this text")
    given = parser.parse_args(arguments)
    set_lapack_threads(1)
    conditions, rows, log = Conditions(), [], ProgressLog()
    for name, make in workloads():
        if given.only not in name:
            continue
        one = make(1)
        for members in given.members:
            log(f"{name}, {members} members")
            several = make(members)
            seconds = interleaved({"alone": _times(one, members), "together": several}, rounds=given.rounds)
            rows.append({"workload": name, "members": members, "speedup": ratio(seconds, "alone", "together")})
    show(
        f"Several members of a sweep in one program against one at a time, {given.rounds} rounds",
        rows,
        conditions,
        as_json=given.json,
    )


def _times(program: Callable[[], Any], count: int) -> Callable[[], Any]:
    """Calls a program several times, each after the one before has finished."""
    import jax

    def several() -> None:
        for _ in range(count):
            jax.block_until_ready(program())

    return several
