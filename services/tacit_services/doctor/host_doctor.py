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
from tacit_services.enrollment.authority import CA, CERTIFICATE
from tacit_services.federation import access, federation_settings
from tacit_services.federation.access import Access
from tacit_services.federation.federation_settings import FederationSettings
from tacit_services.transport.mqtt import ALPN
from tacit_services.transport.proxy import DIRECT
from tacit_services.transport.tls import near_end

_SERVED = ("broker", "enrollment")  # folders of the servers' certificates, in FOLDER/ca
_RENEWED = "`tacit serve` renews it when it starts: start it anew"


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
        for name in (CA, *(f"{name}/{CERTIFICATE}" for name in _SERVED)):
            if (path := self._folder / "ca" / name).exists():
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
        try:
            certificate = self._route.certificate(ALPN)
            ca = x509.load_pem_x509_certificate((self._folder / "ca" / CA).read_bytes())
            certificate.verify_directly_issued_by(ca)
        except (OSError, ValueError, TypeError) as error:
            return ill("broker", f"does not answer ({error or 'closed'})", "see broker/broker.log")
        return well("broker", "answers at the one port")


def _certificate(path: Path) -> Diagnosis:
    what = path.parent.name if path.name == CERTIFICATE else "authority"
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
