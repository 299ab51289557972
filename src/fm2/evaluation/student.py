"""Student's t distribution, for intervals whose standard error comes from a few seeds. SciPy is not a dependency."""

from __future__ import annotations

import math
from statistics import NormalDist

NORMAL_FROM = 1e6  # degrees of freedom; the difference from the normal distribution is below 1e-6
TINY = 1e-300


def two_sided(t: float, freedom: float) -> float:
    """Return the probability that |T| is at least ``t``.

    >>> round(two_sided(12.706, 1), 4), round(two_sided(2.2281, 10), 4), round(two_sided(1.96, math.inf), 4)
    (0.05, 0.05, 0.05)
    """
    if freedom >= NORMAL_FROM:
        return 2 * NormalDist().cdf(-abs(t))
    return _incomplete_beta(freedom / (freedom + t * t), freedom / 2, 0.5)


def quantile(confidence: float, freedom: float) -> float:
    """Return the t that |T| stays below with the probability ``confidence``.

    >>> [round(quantile(0.95, freedom), 3) for freedom in (1, 2.5, 10, math.inf)]
    [12.706, 3.575, 2.228, 1.96]
    """
    if freedom >= NORMAL_FROM:
        return NormalDist().inv_cdf((1 + confidence) / 2)
    low, high = 0.0, 1.0
    while two_sided(high, freedom) > 1 - confidence:
        low, high = high, 2 * high
    while high - low > 1e-10 * high:
        middle = (low + high) / 2
        low, high = (middle, high) if two_sided(middle, freedom) > 1 - confidence else (low, middle)
    return high


def _incomplete_beta(x: float, a: float, b: float) -> float:
    """Return the regularized incomplete beta function by its continued fraction, with Lentz's method."""
    if x in (0.0, 1.0):
        return x
    if x > (a + 1) / (a + b + 2):  # the fraction converges fast on the other side only
        return 1 - _incomplete_beta(1 - x, b, a)
    front = a * math.log(x) + b * math.log1p(-x) + math.lgamma(a + b) - math.lgamma(a) - math.lgamma(b)
    c, d = 1.0, 1 / (1 - (a + b) * x / (a + 1))
    fraction = d
    for m in range(1, 1000):
        for term in (
            m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
            -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1)),
        ):
            d = 1 / _nonzero(1 + term * d)
            c = _nonzero(1 + term / c)
            fraction *= c * d
        if abs(c * d - 1) < 1e-15:
            break
    return math.exp(front) * fraction / a


def _nonzero(value: float) -> float:
    return value if abs(value) > TINY else TINY
