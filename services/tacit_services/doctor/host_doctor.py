"""`tacit doctor --federation FOLDER`, on the host's own machine. It changes nothing."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path

from cryptography import x509

from tacit.errors import TacitError
from tacit_services.doctor import machine
from tacit_services.doctor.diagnosis import Diagnosis, ill, near, skipped, well
from tacit_services.doctor.host_route import HostRoute
from tacit_services.enrollment import certificates
from tacit_services.enrollment.acl import BROKER
from tacit_services.enrollment.authority import CA, CERTIFICATE
from tacit_services.federation import access, federation_settings
from tacit_services.federation.access import Access
from tacit_services.federation.federation_settings import FederationSettings
from tacit_services.transport.mqtt import ALPN
from tacit_services.transport.proxy import DIRECT
from tacit_services.transport.tls import context_trusting, near_end

_RENEWED = "`tacit serve` renews its own when it starts, and reads others then: start it anew"


class HostDoctor:
    """The looks at one federation, from its folder."""

    def __init__(self, folder: Path) -> None:
        """Prepare it. Raises ConfigError where no federation is."""
        self._folder = folder
        self._access: Access = access.of_folder(folder)
        self._settings: FederationSettings = federation_settings.served(folder)
        self._route = HostRoute(self._access.url, DIRECT)

    def diagnoses(self) -> Iterator[Diagnosis]:
        """Yield each diagnosis as it comes."""
        yield HostRoute(self._settings.url, DIRECT).name()
        cause = ""
        looks: dict[str, Callable[[], Diagnosis]] = {
            "port": self._route.port_answers,
            "runs": self._runs,
            "broker": self._broker,
        }
        for what, look in looks.items():
            diagnosis = skipped(what, f"not looked at, because of {cause}") if cause else look()
            if diagnosis.is_ill and what == "port":
                cause = diagnosis.what
            yield diagnosis
        for path in self._served():
            if path.exists():
                yield _certificate(path)
        yield machine.disk(self._folder)
        yield machine.memory()

    def _runs(self) -> Diagnosis:
        """Ask the host, as its operator, how the runs stand."""
        try:
            with self._access.client() as client:
                runs = client.runs()
        except TacitError as error:
            return ill("runs", str(error), "start `tacit serve` anew; its log says more")
        failed = [run.name for run in runs if run.state == "failed"]
        if failed:
            return ill("runs", f"failed: {', '.join(failed)}", "`tacit runs` says why")
        return well("runs", f"{len(runs)}, none failed")

    def _broker(self) -> Diagnosis:
        """Look whether the front door hands a client of MQTT to the federation's broker."""
        name = federation_settings.BELIEVED if self._settings.broker else f"ca/{CA}"
        try:
            context = context_trusting(self._folder / name)
            context.check_hostname = False  # it is asked for at the loopback interface
            self._route.shown_to(context, ALPN)
        except (OSError, TacitError) as error:
            return ill("broker", f"does not answer ({error or 'closed'})", self._broker_log())
        return well("broker", "answers at the one port")

    def _broker_log(self) -> str:
        if self._settings.broker is None:
            return "see broker/broker.log"
        return f"look at {self._settings.broker}, and at its certificate (docs/federation.md)"

    def _served(self) -> list[Path]:
        """Return the certificates of the authority and of what serves."""
        ca = self._folder / "ca"
        served = [ca / CA]
        if self._settings.broker is None:
            served.append(ca / BROKER / CERTIFICATE)
        served.append(self._settings.certificate or ca / federation_settings.WEB / CERTIFICATE)
        return served


def _certificate(path: Path) -> Diagnosis:
    what = {CERTIFICATE: path.parent.name, CA: "authority"}.get(path.name, path.name)
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except (OSError, ValueError) as error:
        return ill("certificate", f"{path}: {error}", "put the folder's copy back")
    ends = certificate.not_valid_after_utc.timestamp()
    names = ", ".join(certificates.hosts(certificate)[:3])
    words = f"{what}{f' for {names}' if names else ''}"
    if ends < time.time():
        return ill("certificate", f"{words}: has ended", _RENEWED)
    if soon := near_end(ends):
        return near("certificate", f"{words}: {soon}", _RENEWED)
    return well("certificate", f"{words}: is valid for {(ends - time.time()) / 86400:.0f} days")
