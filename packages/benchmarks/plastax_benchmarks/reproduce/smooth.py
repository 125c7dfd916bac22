"""The Savitzky-Golay filter of curves over tasks, as in the paper's figure of continual ImageNet."""

import numpy as np


ORDER = 2
"""The degree of the polynomials that are fitted."""

SHORTEST = 10
"""Curves with fewer tasks are not smoothed."""


def savitzky_golay(values: np.ndarray) -> np.ndarray:
    """A curve, smoothed over a fifth of its length. Short curves do not change."""
    from scipy.signal import savgol_filter

    if len(values) < SHORTEST:
        return values
    window = max(ORDER + 3, len(values) // 5) | 1  # An odd number.
    return np.asarray(savgol_filter(values, window, ORDER))
