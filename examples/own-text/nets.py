"""The network of this example: the mean of a text's words, and a dense layer on it."""

import torch
from torch import Tensor, nn


class Bag(nn.Module):
    """Scores (B, outputs) of texts x (B, length), in whatever order their words come."""

    def __init__(self, words: int, width: int, outputs: int) -> None:
        super().__init__()
        self.words = nn.Embedding(words, width)
        self.head = nn.Linear(width, outputs)
        nn.init.normal_(self.words.weight, std=0.3)

    def forward(self, x: Tensor) -> Tensor:
        """0 is padding, and counts for nothing."""
        told = (x != 0).unsqueeze(-1)
        total = torch.where(told, self.words(x), 0).sum(1)
        scores: Tensor = self.head(total / told.sum(1).clamp(min=1))
        return scores
