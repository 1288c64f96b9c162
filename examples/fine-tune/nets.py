"""The network of this example: a front that public pictures taught, and a head."""

import torch
from torch import Tensor, nn


class Net(nn.Module):
    """Two convolutions and a dense layer (front), and one layer for the classes (head)."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.front = nn.Sequential(
            nn.Conv2d(1, 16, 5, padding=2), nn.GroupNorm(4, 16), nn.ReLU(), nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1), nn.GroupNorm(4, 32), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(32 * 25, 32), nn.Tanh(),
        )  # fmt: skip
        self.head = nn.Linear(32, classes)

    def forward(self, x: Tensor) -> Tensor:
        """Scores (B, classes) of pictures (B, 1, 20, 20)."""
        scores: Tensor = self.head(self.front(x))
        return scores


def pretrained(x: Tensor, y: Tensor, classes: int, steps: int = 400) -> Net:
    """A network that has learnt public pictures x (n, 1, 20, 20) and their classes y, plainly."""
    torch.manual_seed(1)
    net = Net(classes)
    optimizer = torch.optim.Adam(net.parameters(), lr=2e-3)
    for _ in range(steps):
        rows = torch.randint(len(y), (64,))
        optimizer.zero_grad()
        nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
        optimizer.step()
    return net
