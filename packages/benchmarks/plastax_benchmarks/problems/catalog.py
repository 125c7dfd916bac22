"""All problems by name: what each is and where it comes from."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Description:
    """A problem, in words, the module that makes it, and whether `train_size` is the number of rows of each class."""

    what: str
    reference: str
    module: str
    sizes_of_classes: bool = False


_PAPER = "Prakash, He, Guo et al. 2026"

PROBLEMS = {
    "permuted-mnist": Description(
        "digits whose pixels are shuffled anew for every task",
        "Goodfellow et al. 2013; Dohare et al. 2024",
        "permuted_mnist",
    ),
    "continual-imagenet": Description(
        "telling two classes of 32x32 images apart, a new pair for every task",
        "Dohare et al. 2024",
        "continual_imagenet",
        sizes_of_classes=True,
    ),
    "incremental-cifar": Description(
        "CIFAR-100 with more classes in every task, old ones included",
        "Dohare et al. 2024",
        "incremental_cifar",
        sizes_of_classes=True,
    ),
    "random-label-mnist": Description(
        "learning random labels of digits by heart, new labels for every task", "Lyle et al. 2023", "random_label_mnist"
    ),
    "slowly-changing-regression": Description(
        "regression on bits, one of which flips from task to task; needs no data",
        "Dohare et al. 2024",
        "slowly_changing_regression",
    ),
    "linearized-mnist": Description(
        "permuted digits for the linearized ReLU network of the paper's theory", _PAPER, "linearized_mnist"
    ),
}


def check_problem(name: str) -> Description:
    """The problem of that name, or an error that lists them all."""
    if name not in PROBLEMS:
        raise ValueError(f"there is no problem {name!r}: choose one of {', '.join(PROBLEMS)}")
    return PROBLEMS[name]
