"""The parts of a run that a test has assembled, by their names."""

from __future__ import annotations

from tacit_services.aggregator.assembly import Assembly
from tacit_services.aggregator.driver import ServerDriver
from tacit_services.aggregator.pipeline import Pipeline
from tacit_services.aggregator.run import Run


class Assembled:
    """A rig around `assembly`, which a restart replaces."""

    assembly: Assembly

    @property
    def live(self) -> Run:
        """The run as its aggregator has it."""
        return self.assembly.run

    @property
    def pipeline(self) -> Pipeline:
        """The way of its messages."""
        return self.assembly.pipeline

    @property
    def driver(self) -> ServerDriver:
        """What drives it."""
        return self.assembly.driver
