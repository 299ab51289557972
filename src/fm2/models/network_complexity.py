"""Operations per prediction of networks, as the table in the paper's section 4.2 estimates them.

The table counts two operations for each term of the orders of growth, with n = 39, K = 16, perceptrons of L = 3 layers
of H = 200 units, K' = 32 in AutoInt, and without 90 % of DeepLight's field pairs and 80 % of its perceptron's weights.
For DeepFM it counts only one, which makes it half as expensive as Wide & Deep with the same perceptron. The modules in
``fm2.models.deep`` count their actual operations, which are fewer: L hidden layers have L - 1 matrices of H × H.
"""

from __future__ import annotations

N, K, H, L = 39, 16, 200, 3


def perceptron(n: int = N, k: int = K, h: int = H, layers: int = L) -> int:
    """Return nKH + LH², which most of the formulas share.

    >>> perceptron()
    244800
    """
    return n * k * h + layers * h**2


def wide_and_deep(n: int = N, k: int = K, h: int = H, layers: int = L) -> int:
    """Count n² + nKH + LH²; the paper says about 500,000.

    >>> wide_and_deep()
    492642
    """
    return 2 * (n**2 + perceptron(n, k, h, layers))


def deepfm(n: int = N, k: int = K, h: int = H, layers: int = L) -> int:
    """Count nKH + LH² + n², one operation each; the paper says about 246,000.

    >>> deepfm()
    246321
    """
    return perceptron(n, k, h, layers) + n**2


def xdeepfm(n: int = N, k: int = K, h: int = H, layers: int = L) -> int:
    """Count nH²KL; the paper says about 150,000,000.

    >>> xdeepfm()
    149760000
    """
    return 2 * n * h**2 * k * layers


def autoint(n: int = N, k: int = K, h: int = H, space: int = 32) -> int:
    """Count nHK'(n + K); the paper says about 28,000,000.

    >>> autoint()
    27456000
    """
    return 2 * n * h * space * (n + k)


def fibinet(n: int = N, k: int = K, h: int = H, layers: int = L) -> int:
    """Count n²K² + n²KH + LH²; the paper says about 10,000,000.

    >>> fibinet()
    10753152
    """
    return 2 * (n**2 * k**2 + n**2 * k * h + layers * h**2)


def deeplight(n: int = N, k: int = K, h: int = H, layers: int = L, pairs: float = 0.9, weights: float = 0.8) -> int:
    """Count the remaining parts of n²K and of nKH + LH² after pruning; the paper says about 102,000.

    >>> deeplight()
    102787
    """
    return round(2 * (n**2 * k * (1 - pairs) + perceptron(n, k, h, layers) * (1 - weights)))


def deep_and_cross(n: int = N, k: int = K, h: int = H, layers: int = L, crosses: int = 6) -> int:
    """Count a perceptron and cross layers of x₀(xᵀw) + b + x, 5nK each; the paper says about 510,000.

    Its formula has n²K² for the cross layers, which alone would be 778,752 operations. Its figure matches six layers.

    >>> deep_and_cross()
    508320
    """
    return 2 * perceptron(n, k, h, layers) + crosses * 5 * n * k
