"""The layout of version 0.2: one folder is one room, and a simulation is given a run file."""

from tacit_services.testbed.simulate import simulate

from golden.adapters.rooms import *  # noqa: F403
from tacit.protocol import wire
from tacit.simulation.client_server import Simulator
