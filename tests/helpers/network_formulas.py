"""Operations per prediction of networks by the formulas of the paper's section 4.2.

The paper's table counts two operations for each term, with n = 39, K = 16, perceptrons of L = 3 layers of H = 200
units, K' = 32 in AutoInt, and without 90% of DeepLight's field pairs and 80% of its perceptron's weights. For DeepFM
it counts only one operation per term. Its formula for Deep & Cross has n²K² for the cross layers, which alone would be
778,752 operations; its figure matches six cross layers of x₀(xᵀw) + b + x, 5nK each. The modules count their actual
operations, which are fewer: L hidden layers have L - 1 matrices of H × H.
"""

N, K, H, L = 39, 16, 200, 3
PERCEPTRON = N * K * H + L * H**2
FORMULAS = {
    "widedeep": 2 * (N**2 + PERCEPTRON),
    "dcn": 2 * PERCEPTRON + 6 * 5 * N * K,
    "deepfm": PERCEPTRON + N**2,
    "xdeepfm": 2 * N * H**2 * K * L,
    "autoint": 2 * N * H * 32 * (N + K),
    "fibinet": 2 * (N**2 * K**2 + N**2 * K * H + L * H**2),
    "deeplight": round(2 * (N**2 * K * 0.1 + PERCEPTRON * 0.2)),
}
