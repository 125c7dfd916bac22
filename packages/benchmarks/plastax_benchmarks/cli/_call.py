"""Functions as commands."""

from collections.abc import Callable


def call(function: Callable[..., object], command: str, arguments: list[str]) -> None:
    """Calls a function with the values of its flags. Its docstring is the help."""
    import tyro

    tyro.cli(function, prog=f"plastax {command}", args=arguments, config=(tyro.conf.OmitArgPrefixes,))
