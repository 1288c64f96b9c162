"""Local datasets (`load`), their frozen `features`, and their division among edges (`partition`)."""

from tacit.datasets.features import Features
from tacit.datasets.load import Dataset, available, load, load_labels, shape_of, train_size
from tacit.datasets.partition import all_shards, nominal_size, shard

__all__ = [
    "Dataset",
    "Features",
    "all_shards",
    "available",
    "load",
    "load_labels",
    "nominal_size",
    "shape_of",
    "shard",
    "train_size",
]
