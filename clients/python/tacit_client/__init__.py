"""A typed client of a tacit aggregator's REST interface. It needs httpx and pydantic only."""

from tacit_client.client import ApiError, Client, Unreachable
from tacit_client.federation_client import FederationClient, FederationRun, RefusedMember
from tacit_client.models import (
    Begun,
    Edge,
    EdgePrivacy,
    Halted,
    Layer,
    ModelInfo,
    Point,
    Prediction,
    Predictions,
    Privacy,
    RunDefinition,
    RunEvent,
    Schedule,
    Staleness,
    Status,
    Summary,
    Veto,
)

__all__ = [
    "ApiError",
    "Begun",
    "Client",
    "Edge",
    "EdgePrivacy",
    "FederationClient",
    "FederationRun",
    "Halted",
    "Layer",
    "ModelInfo",
    "Point",
    "Prediction",
    "Predictions",
    "Privacy",
    "RefusedMember",
    "RunDefinition",
    "RunEvent",
    "Schedule",
    "Staleness",
    "Status",
    "Summary",
    "Unreachable",
    "Veto",
]
