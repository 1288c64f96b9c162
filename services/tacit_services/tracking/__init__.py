"""Trackers of experiments: MLflow, TensorBoard, Weights & Biases."""
