"""`plastax data`: which data sets are available, and how to get more."""

from pathlib import Path
from typing import Literal


def list_data(data_dir: Path | None = None) -> None:
    """List data sets: which are available, which are missing, and how to get them.

    Args:
        data_dir: folder with data; by default $PLASTAX_DATA_DIR, or ~/.cache/plastax/data.

    """
    from ..data import available, describe, describe_text
    from ..data._search import folder

    print(f"data in {folder(data_dir)}\n{describe(available(data_dir))}\ntext for continual-text\n{describe_text()}")


def prepare_data(name: Literal["mnist", "cifar100", "imagenet32"], data_dir: Path | None = None) -> None:
    """Download a data set with TensorFlow Datasets. This needs TensorFlow; reading the result does not.

    Args:
        name: the data set; imagenet32 has 1.28 million images.
        data_dir: folder for the data; by default $PLASTAX_DATA_DIR, or ~/.cache/plastax/data.

    """
    from ..data._prepare import prepare

    try:
        print(f"{name} is ready in {prepare(name, data_dir)}")
    except (ImportError, ValueError) as error:
        raise SystemExit(str(error)) from error


def main(arguments: list[str]) -> None:
    """`plastax data ARGUMENTS`."""
    import tyro

    tyro.extras.subcommand_cli_from_dict(
        {"list": list_data, "prepare": prepare_data},
        prog="plastax data",
        description="Data sets: which are available, and how to get more.",
        args=arguments,
        config=(tyro.conf.PositionalRequiredArgs,),
    )
