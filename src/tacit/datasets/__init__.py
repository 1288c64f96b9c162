"""Datasets: published and a user's own, frozen features, and their division among edges."""

from tacit.datasets.benchmarks.load import (
    Dataset,
    available,
    group_count,
    is_text,
    load,
    load_groups,
    load_labels,
    party_columns,
    shape_of,
    splits,
    train_size,
)
from tacit.datasets.benchmarks.text import Text
from tacit.datasets.edge_rows import EdgeRows, Units
from tacit.datasets.features import Features
from tacit.datasets.partition import all_shards, nominal_size, shard
from tacit.datasets.source import Benchmark, Dealing, PrivateRows, Source
from tacit.datasets.vertical_rows import feature_blocks, party_view

__all__ = [
    "Benchmark",
    "Dataset",
    "Dealing",
    "EdgeRows",
    "Features",
    "PrivateRows",
    "Source",
    "Text",
    "Units",
    "all_shards",
    "available",
    "feature_blocks",
    "group_count",
    "is_text",
    "load",
    "load_groups",
    "load_labels",
    "nominal_size",
    "party_columns",
    "party_view",
    "shape_of",
    "shard",
    "splits",
    "train_size",
]
