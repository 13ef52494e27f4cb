"""Small classifiers on arrays of features: fit on some examples, predict the classes of others. NumPy, in float64."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

Predict = Callable[[np.ndarray], np.ndarray]
"""Returns classes int[n] of features float[n, d]."""

_ROWS_AT_ONCE = 1024


def fit_ridge(features: np.ndarray, labels: np.ndarray, *, l2: float) -> Predict:
    """Returns the classifier with the largest of one least-squares score a class, with a bias that is not penalized.

    Source: Hastie, Tibshirani, Friedman, The Elements of Statistical Learning, 2nd edition, equation 3.44.
    """
    classes, indices = np.unique(labels, return_inverse=True)
    targets = np.eye(len(classes))[indices]
    feature_mean, target_mean = features.mean(0), targets.mean(0)
    x, y = features - feature_mean, targets - target_mean
    if x.shape[0] < x.shape[1]:
        # The same solution from the smaller of the two systems.
        weights = x.T @ np.linalg.solve(x @ x.T + l2 * np.eye(x.shape[0]), y)
    else:
        weights = np.linalg.solve(x.T @ x + l2 * np.eye(x.shape[1]), x.T @ y)
    return lambda found: classes[((found - feature_mean) @ weights + target_mean).argmax(-1)]


def fit_logistic(features: np.ndarray, labels: np.ndarray, *, l2: float, max_steps: int) -> Predict:
    """Returns multinomial logistic regression on standardized features."""
    from sklearn import linear_model  # 1 s to import, and only this probe needs it.

    mean, scale = features.mean(0), features.std(0)
    scale = np.where(scale == 0, 1.0, scale)
    classes = np.unique(labels)
    if len(classes) == 1:
        return lambda found: np.full(len(found), classes[0])
    model = linear_model.LogisticRegression(C=1.0 / l2, max_iter=max_steps).fit((features - mean) / scale, labels)
    return lambda found: model.predict((found - mean) / scale)


def fit_knn(features: np.ndarray, labels: np.ndarray, *, k: int, temperature: float) -> Predict:
    """Returns the vote of the `k` most similar examples by cosine, each with the weight `exp(cosine / temperature)`.

    Source: Wu et al. 2018, Unsupervised Feature Learning via Non-Parametric Instance Discrimination, section 3.4.
    """
    known = _normalized(features)
    classes, indices = np.unique(labels, return_inverse=True)
    votes_of = np.eye(len(classes))[indices]
    k = min(k, len(known))

    def predict_rows(found: np.ndarray) -> np.ndarray:
        cosines = _normalized(found) @ known.T
        nearest = np.argpartition(-cosines, k - 1, axis=1)[:, :k]
        # Relative to the nearest: large exponents would overflow.
        near = np.take_along_axis(cosines, nearest, axis=1)
        weights = np.exp((near - near.max(1, keepdims=True)) / temperature)
        return classes[(votes_of[nearest] * weights[..., None]).sum(1).argmax(-1)]

    def predict(found: np.ndarray) -> np.ndarray:
        starts = range(0, len(found), _ROWS_AT_ONCE)
        return np.concatenate([predict_rows(found[start : start + _ROWS_AT_ONCE]) for start in starts])

    return predict


def few_of_each_class(labels: np.ndarray, shots: int, seed: int) -> np.ndarray:
    """Returns the indices of `shots` examples of each class, drawn with `seed`; all where a class has fewer."""
    rng = np.random.default_rng(seed)
    chosen = [rng.permutation(np.flatnonzero(labels == label))[:shots] for label in np.unique(labels)]
    return np.sort(np.concatenate(chosen))


def _normalized(features: np.ndarray) -> np.ndarray:
    norms = np.linalg.norm(features, axis=1, keepdims=True)
    return features / np.where(norms == 0, 1.0, norms)
