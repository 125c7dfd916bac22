"""`plastax bench`: compare two programs in one run."""

import importlib

from ._choices import print_choices


BENCHES = {
    "adam": "our Adam with counts that can be reset, against optax's",
    "effective-rank": "our closed form against autodiff through an SVD",
    "interval": "the cost of an effective-rank step every 100 steps, against the ideal",
    "grouping": "several members of a sweep in one program, against one at a time",
    "sketch": "bounds of the effective rank from sketches, and the exact value",
    "wide": "effective rank of features with many rows: memory and time of exact and cheap forms",
    "rows": "the effective rank and gradient of some rows, against those of all rows",
    "transformer": "what L2-ER adds to a training step of a transformer",
    "kernels": "Triton and XLA paths of the hot operations",
    "hvp": "Hessian-vector products of a dense network for several vectors, against vmap(jvp(grad))",
    "lanczos": "our Lanczos against matfree and an eager loop",
    "spectra": "the spectrum of a Hessian by us, matfree, curvlinops and PyHessian",
    "report": "time and memory of a plasticity report, against its products and training steps",
    "monitor": "the share of training time that a monitor takes, at every 100 and 1000 steps",
    "startup": "imports, commands, and the first progress of a run, in fresh processes",
    "coverage": "how often error bars of the epsilon-rank cover the truth",
    "resnet-hvp": "memory of Hessian-vector products of a ResNet-18",
    "methods": "training steps per second of every method on the paper's network, against plain scans",
    "convolutions": "a training step of the convolutional networks against Flax and PyTorch: time and memory",
    "paper-scale": "a few steps of each problem at the paper's scale: time and memory",
    "growth": "slopes of time and memory against width, depth, samples, order, probes, seeds and tasks",
    "resume": "kill a run at random moments, resume it, and compare its metrics with an undisturbed run",
    "diagnosis": "whether measurements at the start of a task predict how well a network learns it",
    "rl": "environment steps per second of our PPO and of brax's",
}


def main(arguments: list[str]) -> None:
    """Runs the benchmark named by the first argument."""
    name = arguments[0] if arguments else "--help"
    if name not in BENCHES:
        print_choices("usage: plastax bench NAME [--help] [options of that benchmark]", BENCHES, name, "benchmark")
        return
    importlib.import_module(f"plastax_benchmarks.bench.{name.replace('-', '_')}").main(arguments[1:])
