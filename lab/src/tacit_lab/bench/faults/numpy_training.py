"""The sites' network and local steps in numpy alone, for the peers' clients.

Flower starts a process for each message: without torch that takes two seconds of a processor less.
"""

import numpy as np

Arrays = list[np.ndarray]


def network(features: int, hidden: int, classes: int, seed: int) -> Arrays:
    """Return weights and biases of two hidden layers."""
    generator = np.random.default_rng(seed)
    arrays = []
    for inputs, outputs in ((features, hidden), (hidden, hidden), (hidden, classes)):
        bound = inputs**-0.5
        arrays.append(generator.uniform(-bound, bound, (inputs, outputs)).astype(np.float32))
        arrays.append(generator.uniform(-bound, bound, outputs).astype(np.float32))
    return arrays


def train(
    arrays: Arrays, x: np.ndarray, y: np.ndarray, steps: int, batch: int, rate: float
) -> Arrays:
    """Take steps of SGD on the cross-entropy of random batches."""
    arrays = [array.astype(np.float32) for array in arrays]
    generator = np.random.default_rng()
    for _ in range(steps):
        index = generator.integers(len(y), size=batch)
        for array, gradient in zip(arrays, gradients(arrays, x[index], y[index]), strict=True):
            array -= rate * gradient
    return arrays


def gradients(arrays: Arrays, x: np.ndarray, y: np.ndarray) -> Arrays:
    """Return the gradient of the mean cross-entropy, array by array."""
    layers = [x]
    for number in (0, 2):
        layers.append(np.maximum(layers[-1] @ arrays[number] + arrays[number + 1], 0.0))
    scores = layers[-1] @ arrays[4] + arrays[5]
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    slope = chances / chances.sum(axis=1, keepdims=True)
    slope[np.arange(len(y)), y] -= 1.0
    slope /= len(y)
    answer: Arrays = []
    for number in (4, 2, 0):
        values = layers[number // 2]
        answer = [values.T @ slope, slope.sum(axis=0), *answer]
        if number:
            slope = (slope @ arrays[number].T) * (values > 0)
    return answer


def together(arrays: Arrays) -> np.ndarray:
    """Return all numbers as one vector."""
    return np.concatenate([array.reshape(-1) for array in arrays]).astype(np.float32)


def apart(vector: np.ndarray, form: Arrays) -> Arrays:
    """Return the arrays, of the shapes of `form`, that `together` made a vector of."""
    ends = np.cumsum([array.size for array in form])[:-1]
    parts = np.split(np.asarray(vector, dtype=np.float32), ends)
    return [part.reshape(array.shape) for part, array in zip(parts, form, strict=True)]
