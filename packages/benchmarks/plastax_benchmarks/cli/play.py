"""`plastax play`: watch the ant of a run."""

from ._call import call


def main(arguments: list[str]) -> None:
    """Writes an episode as a page for the browser."""
    from ..rl.play import play

    call(play, "play", arguments)
