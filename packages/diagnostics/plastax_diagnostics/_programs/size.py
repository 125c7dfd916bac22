"""How large an array may be."""

LARGEST = 2**31
"""The largest size of an array that is stored for the layers of a network, in bytes."""


def check_bytes(needed: int, what: str) -> None:
    """Raises if an array of that many bytes is too large."""
    if needed > LARGEST:
        raise ValueError(
            f"{what} would take {needed / 2**30:.1f} GiB, and at most {LARGEST / 2**30:.0f} GiB are stored: use fewer "
            "samples, shorter sequences, or a part of the layers (where=)"
        )
