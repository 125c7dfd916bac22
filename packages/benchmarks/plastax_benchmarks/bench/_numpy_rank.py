"""Effective rank in float64 numpy, as a reference."""

import numpy as np


def numpy_effective_rank(features, *, cut: float = 1e-6, of: str = "features") -> tuple[float, np.ndarray]:
    """Value and gradient from numpy's singular value decomposition, with plastax's cut."""
    features = np.asarray(features, np.float64)
    u, s, vt = np.linalg.svd(features, full_matrices=False)
    kept = s > cut * s[0]
    if not kept.any():
        return 0.0, np.zeros(features.shape)
    u, s, vt = u[:, kept], s[kept], vt[kept]
    mass, mass_slope = (s, np.ones_like(s)) if of == "features" else (s**2, 2 * s)
    share = mass / mass.sum()
    entropy = -np.sum(share * np.log(share))
    slope = -np.exp(entropy) * (np.log(share) + entropy) / mass.sum() * mass_slope
    return float(np.exp(entropy)), (u * slope) @ vt
