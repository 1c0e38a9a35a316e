"""How features fill their space: ranks, spread on the sphere, agreement of views.

Features are an array (samples, d), views an array (instances, views, d); tensors are taken too. All sums are
in float64. The paper standardises features first (`standardize`); these functions do not do it on their own.

Collapsed features have a value, not an error: a spectrum of zeros has rank 1, and a row of zeros, which has
no direction, stays at the origin. NaN and infinity raise `InputError`.
"""

from __future__ import annotations

import numpy as np
import torch

from icone.errors import InputError
from icone.evaluation.inputs import Features, FloatArray, finite_array

RANKME_EPSILON = 1e-7
LIDAR_DELTA = 1e-4
UNIFORMITY_TEMPERATURE = 2.0
UNIFORMITY_ROWS = 10_000
"""Above this many samples `uniformity` looks at the pairs among this many, drawn once with a fixed seed."""
BLOCK = 1024


def standardize(x: Features) -> FloatArray:
    """Bring every dimension to mean 0 and variance 1 (over N); a constant dimension becomes 0.

    >>> standardize([[1.0, 5.0], [3.0, 5.0]])
    array([[-1.,  0.],
           [ 1.,  0.]])
    """
    x = _features(x)
    centred = x - x.mean(axis=0)
    centred[:, x.max(axis=0) == x.min(axis=0)] = 0  # the mean is rounded: no residue may be scaled up
    std = np.sqrt((centred**2).mean(axis=0))
    standardized: FloatArray = centred / np.where(std == 0, 1.0, std)
    return standardized


def singular_values(x: Features) -> FloatArray:
    """Singular values of the features as they are (not centred), largest first: min(N, d) of them.

    >>> singular_values([[3.0, 0.0], [0.0, 4.0], [0.0, 0.0]])
    array([4., 3.])
    """
    array = torch.tensor(_features(x))
    gram = array @ array.T if len(array) < array.shape[1] else array.T @ array
    values: FloatArray = torch.linalg.eigvalsh(gram).flip(0).clamp(min=0).sqrt().numpy()
    return values


def entropy_rank(spectrum: FloatArray, epsilon: float = 0.0) -> float:
    """Exponential of the entropy of a non-negative spectrum; 1 where it is all zero.

    >>> round(entropy_rank(np.array([2.0, 2.0, 0.0])), 6)
    2.0
    """
    if not spectrum.any():
        return 1.0
    p = spectrum / spectrum.sum() + epsilon
    p = p[p > 0]
    return float(np.exp(-(p * np.log(p)).sum()))


def effective_rank(x: Features) -> float:
    """Exponential of the entropy of the normalised singular values of the centred features.

        exp(−Σ p_k log p_k),   p_k = σ_k / Σ_j σ_j

    From 1 (all variation along one direction, or none) to min(N − 1, d).

    >>> round(effective_rank([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 6)
    2.0
    """
    x = _features(x)
    return entropy_rank(singular_values(x - x.mean(axis=0)))


def rankme(x: Features) -> float:
    """Exponential of the entropy of the normalised singular values of the features, not centred (RankMe).

        exp(−Σ p_k log p_k),   p_k = σ_k / ‖σ‖₁ + 1e-7

    Garrido, Balestriero, Najman and LeCun 2022, arXiv:2210.02885.

    >>> round(rankme([[1.0, 0.0], [0.0, 1.0]]), 4)
    2.0
    """
    return entropy_rank(singular_values(x), RANKME_EPSILON)


def variance_rank(x: Features) -> float:
    """Exponential of the entropy of the shares of variance along the principal components.

        exp(−Σ p_k log p_k),   p_k = σ_k² / Σ_j σ_j²   of the centred features

    Noise counts by its variance: a line that is blurred by a twentieth of its length still has rank 1 and a little,
    where ranks of singular values (`rankme`, `effective_rank`) grow with every dimension that the noise fills.

    >>> round(variance_rank([[1.0, 0.0], [-1.0, 0.0], [0.0, 1.0], [0.0, -1.0]]), 6)
    2.0
    """
    x = _features(x)
    return entropy_rank(singular_values(x - x.mean(axis=0)) ** 2)


def lidar(views: Features) -> float:
    """Effective rank of what tells instances apart, relative to how views of one instance scatter (LiDAR).

        Σ_b = 1/(n−1) Σ_i (μ_i − μ)(μ_i − μ)ᵀ,   Σ_w = 1/(n(q−1)) Σ_i Σ_v (x_iv − μ_i)(x_iv − μ_i)ᵀ + 1e-4·I
        exp(−Σ p_k log p_k),   p = λ / Σ λ,   λ the eigenvalues of Σ_w^(−½) Σ_b Σ_w^(−½)

    views: (n instances, q views, d); the usual number of views is 10. Instances that coincide give 1.

    Thilak et al. 2023, arXiv:2312.04000.
    """
    views = _views(views, min_instances=2)
    n, q, d = views.shape
    means = views.mean(axis=1)
    within = np.zeros((d, d))
    for start in range(0, n, BLOCK):  # blocks, because deviations of all views would double the memory
        stop = start + BLOCK
        deviations = (views[start:stop] - means[start:stop, None]).reshape(-1, d)
        within += deviations.T @ deviations
    within = within / (n * (q - 1)) + LIDAR_DELTA * np.eye(d)
    # With Σ_w = LLᵀ the eigenvalues are the squared singular values of L⁻¹(μ_i − μ), and never negative.
    whitened = np.linalg.solve(np.linalg.cholesky(within), (means - means.mean(axis=0)).T)
    return entropy_rank(singular_values(whitened.T) ** 2)


def alignment(views: Features) -> float:
    """Mean squared distance between two views of the same instance, on the unit sphere.

        E ‖z̃ − z̃⁺‖²   over instances and all pairs of their views

    views: (instances, views, d). From 0 (views agree) to 4 (two views at opposite poles).
    Wang and Isola 2020, arXiv:2005.10242.

    >>> alignment([[[1.0, 0.0], [0.0, 2.0]]])  # a right angle
    2.0
    """
    unit = _on_sphere(_views(views))
    return float(2 * unit.var(axis=1, ddof=1).sum(axis=-1).mean())  # E‖a − b‖² is twice the unbiased variance


def uniformity(x: Features) -> float:
    """Logarithm of the mean Gaussian potential between two different samples, on the unit sphere.

        log E_{i≠j} exp(−2 ‖z̃_i − z̃_j‖²)

    From 0 (all samples in one place) downwards: about −4 in high dimension when spread evenly. Exact up to
    10,000 samples; of more, 10,000 drawn with a fixed seed stand for all. Wang and Isola 2020, arXiv:2005.10242.

    >>> round(uniformity([[1.0, 0.0], [0.0, 1.0]]), 6)  # squared distance 2
    -4.0
    """
    unit = _on_sphere(_features(x))
    if len(unit) > UNIFORMITY_ROWS:
        unit = unit[np.random.default_rng(0).choice(len(unit), UNIFORMITY_ROWS, replace=False)]
    n = len(unit)
    norms = (unit**2).sum(axis=1)  # 1, or 0 for a row of zeros
    total = 0.0
    for start in range(0, n, BLOCK):
        rows, rest = slice(start, start + BLOCK), slice(start, None)
        squared = norms[rows, None] + norms[rest] - 2 * unit[rows] @ unit[rest].T
        total += float(np.triu(np.exp(-UNIFORMITY_TEMPERATURE * squared), k=1).sum())
    return float(np.log(total / (n * (n - 1) / 2)))


def mean_cosine(x: Features) -> float:
    """Mean cosine between two different samples, in O(N·d): (‖Σ z̃‖² − Σ ‖z̃‖²) / (N(N−1)).

    >>> mean_cosine([[1.0, 0.0], [5.0, 0.0], [0.0, 1.0]])  # one pair of three agrees
    0.3333333333333333
    """
    unit = _on_sphere(_features(x))
    n = len(unit)
    return float(((unit.sum(axis=0) ** 2).sum() - (unit**2).sum()) / (n * (n - 1)))


def first_component_share(x: Features) -> float:
    """Share of the variance that lies along the first principal component; 1 where there is no variance.

    >>> first_component_share([[3.0, 0.0], [-3.0, 0.0], [0.0, 1.0], [0.0, -1.0]])
    0.9
    """
    x = _features(x)
    energy = singular_values(x - x.mean(axis=0)) ** 2
    return float(energy[0] / energy.sum()) if energy[0] > 0 else 1.0


def _on_sphere(x: FloatArray) -> FloatArray:
    """Scale the last dimension to length 1; a row of zeros stays as it is."""
    norm = np.linalg.norm(x, axis=-1, keepdims=True)
    unit: FloatArray = x / np.where(norm == 0, 1, norm)
    return unit


def _features(x: Features) -> FloatArray:
    array = finite_array(x)
    if array.ndim != 2 or len(array) < 2 or array.shape[1] == 0:
        raise InputError(f"features must have shape (samples, d) with at least 2 samples, got {array.shape}")
    return array


def _views(x: Features, min_instances: int = 1) -> FloatArray:
    array = finite_array(x, "views")
    if array.ndim != 3 or array.shape[0] < min_instances or array.shape[1] < 2 or array.shape[2] == 0:
        raise InputError(
            f"views must have shape (instances, views, d) with at least {min_instances} instance(s) "
            f"and 2 views of each, got {array.shape}"
        )
    return array
