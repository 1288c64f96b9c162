"""The process of a member at work in one run: an edge, whose consent and ledger are the member's.

It reads the offer that was consented to from the member's folder, checks again that it is that one
and that the consent holds, and trains as `tacit edge` does. What it releases is charged to the
ledger that all workers of the data share.
"""

from __future__ import annotations

import logging
import sys
from pathlib import Path

import torch

from tacit.config.site import Site
from tacit.errors import PolicyForbids, TacitError
from tacit.kernels.loading import described
from tacit.privacy.private_sum.denormals import flush_pool
from tacit_services import logs
from tacit_services.edge.main import edge_loop
from tacit_services.identity.folder import Identities
from tacit_services.launch import complain
from tacit_services.member.member_state import MemberState
from tacit_services.member.work_order import WorkOrder
from tacit_services.offers.offer import Offer
from tacit_services.offers.reading import definition_at_member
from tacit_services.offers.submission import FILES, OFFER
from tacit_services.settings import EdgeSettings
from tacit_services.signals import stopping
from tacit_services.worker.cpu_turns import CpuTurns
from tacit_services.worker.enroll import Credentials
from tacit_services.worker.heartbeat import Heartbeat
from tacit_services.worker.outbox import Outbox
from tacit_services.worker.resources import Broker, WorkerResources
from tacit_services.worker.row_owner import RowOwner
from tacit_services.worker.serving import loop_settings, serve

log = logging.getLogger("tacit.edge")
