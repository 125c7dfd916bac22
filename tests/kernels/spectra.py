"""Features like those that people have, and their effective rank by numpy in float64."""

import numpy as np


def draw(*shape, seed=0):
    """Normal numbers in float32."""
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def relu_network_features(samples, width, *, worn=False, depth=3):
    """The last features of a ReLU network, computed in float32 as in training.

    Untrained networks have He's initialization. In a worn one, the singular values of the weights fall by a factor of
    1000, and biases have killed some units.
    """
    features = draw(samples, 64)
    for layer in range(depth):
        weights = draw(features.shape[1], width, seed=layer + 1) * np.float32(np.sqrt(2 / features.shape[1]))
        if worn:
            left, singular, right = np.linalg.svd(weights, full_matrices=False)
            weights = (left * np.geomspace(3, 3e-3, len(singular), dtype=np.float32) @ right).astype(np.float32)
        bias = draw(width, seed=layer + 9) * np.float32(0.3 if worn else 0)
        features = np.maximum(features @ weights + bias, 0)
    return features


def with_spectrum(samples, width, singular, seed=0):
    """A matrix in float32 with these singular values, up to rounding."""
    left, _ = np.linalg.qr(draw(samples, len(singular), seed=seed).astype(np.float64))
    right, _ = np.linalg.qr(draw(width, len(singular), seed=seed + 1).astype(np.float64))
    return (left * np.asarray(singular) @ right.T).astype(np.float32)


def rank64(features, of="features", cut=1e-6):
    """Effective rank and its gradient by numpy's SVD."""
    left, singular, right = np.linalg.svd(np.asarray(features, np.float64), full_matrices=False)
    kept = singular > cut * singular.max()
    if not kept.any():
        return 0.0, np.zeros(features.shape)
    power = 1 if of == "features" else 2
    mass = np.where(kept, singular**power, 0)
    share = mass / mass.sum()
    logs = np.log(np.where(kept, share, 1))
    rank = np.exp(-np.sum(share * logs))
    slope = -rank * (logs - np.sum(share * logs)) / mass.sum() * power * singular ** (power - 1)
    return rank, left * np.where(kept, slope, 0) @ right


def assert_rank(result, features, *, of="features", value=1e-6, gradient=1e-4):
    """Compares a rank and its gradient with float64, errors relative to the largest entry."""
    expected_rank, expected = rank64(features, of)
    np.testing.assert_allclose(result[0], expected_rank, rtol=value)
    # Equal singular values have a gradient of zero, up to rounding.
    size = max(np.abs(expected).max(), 1e-2 * expected_rank / max(np.linalg.norm(features, "nuc"), 1e-30))
    np.testing.assert_allclose(np.asarray(result[1], np.float64) / size, expected / size, atol=gradient)


WINDOWS = {"mnist": (100, 1000), "imagenet": (1200, 128), "ant": (2048, 256), "cifar": (500, 512)}

# Spectra of sides up to 128, which every path has to take.
SMALL = {
    "mnist, untrained": relu_network_features(100, 1000),
    "mnist, worn": relu_network_features(100, 1000, worn=True),
    "imagenet, untrained": relu_network_features(1200, 128),
    "imagenet, worn": relu_network_features(1200, 128, worn=True),
    "mean and 1 % noise": (1 + 0.01 * draw(200, 120)).astype(np.float32),
    "tail to 1e-4": with_spectrum(100, 130, np.geomspace(1, 1e-4, 100)),
    "tail to the cut": with_spectrum(60, 70, np.geomspace(1, 1.5e-6, 60)),
    "long clusters": with_spectrum(60, 70, [1.0] * 20 + [0.5] * 20 + [1e-3] * 20),
    "rank 30 of 100": with_spectrum(100, 128, np.geomspace(1, 1e-2, 30)),
    "duplicates": np.repeat(draw(20, 70), 2, axis=0),
}
# The same kinds for Triton's interpreter, which takes seconds where blocks of rows meet, at sides above 64: only the
# hardest network has such a side.
INTERPRETED = {
    "mnist, worn": SMALL["mnist, worn"],
    "wide, untrained": relu_network_features(30, 300),
    "tall, untrained": relu_network_features(300, 30),
    "tall, worn": relu_network_features(300, 30, worn=True),
    "mean and 1 % noise": (1 + 0.01 * draw(50, 30)).astype(np.float32),
    "tail to 1e-4": with_spectrum(30, 40, np.geomspace(1, 1e-4, 30)),
    "tail to the cut": with_spectrum(30, 35, np.geomspace(1, 1.5e-6, 30)),
    "long clusters": with_spectrum(30, 35, [1.0] * 10 + [0.5] * 10 + [1e-3] * 10),
    "rank 10 of 30": with_spectrum(30, 40, np.geomspace(1, 1e-2, 10)),
    "duplicates": np.repeat(draw(15, 35), 2, axis=0),
}
LARGE = {
    f"{name}, {'worn' if worn else 'untrained'}": relu_network_features(*WINDOWS[name], worn=worn)
    for name in ("ant", "cifar")
    for worn in (False, True)
}
