"""What a history of releases costs."""

from tacit.privacy.accounting.epsilon import (
    TAIL,
    RunningRdp,
    calibrate,
    certified_pushes,
    delta_set_aside,
    epsilon_disjoint,
    epsilon_pld,
    epsilon_rdp,
    epsilon_shared,
    rdp_vector,
)
from tacit.privacy.accounting.history import History, Spend, merged
from tacit.privacy.accounting.lifetime import Lifetime
from tacit.privacy.accounting.privacy_losses import ORDERS

__all__ = [
    "ORDERS",
    "TAIL",
    "History",
    "Lifetime",
    "RunningRdp",
    "Spend",
    "calibrate",
    "certified_pushes",
    "delta_set_aside",
    "epsilon_disjoint",
    "epsilon_pld",
    "epsilon_rdp",
    "epsilon_shared",
    "merged",
    "rdp_vector",
]
