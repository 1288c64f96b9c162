"""The five published systems, each as pure state machines, and what your own algorithm needs.

Your own algorithm: docs/your-algorithm.md.
"""

from pydantic import Field

from tacit.algorithms.base.algorithm import Algorithm, ServerAlgorithm
from tacit.algorithms.base.gradient_edge import GradientTask
from tacit.algorithms.base.local_steps import LocalStepsTask
from tacit.algorithms.base.tree_sums import TreeSumsTask
from tacit.algorithms.own.own_rounds import AlgorithmRounds, RoundSettings
from tacit.algorithms.own.own_server import AlgorithmServer
from tacit.algorithms.own.own_settings import AlgorithmSettings
from tacit.algorithms.own.own_steps import LocalRule, OwnStepsTask
from tacit.config.algorithm_contract import RATES
from tacit.privacy.policy import Positive
from tacit.protocol.messages import Outgoing, Update

__all__ = [
    "RATES",
    "Algorithm",
    "AlgorithmRounds",
    "AlgorithmServer",
    "AlgorithmSettings",
    "Field",
    "GradientTask",
    "LocalRule",
    "LocalStepsTask",
    "Outgoing",
    "OwnStepsTask",
    "Positive",
    "RoundSettings",
    "ServerAlgorithm",
    "TreeSumsTask",
    "Update",
]
