"""`tacit serve`: the host of a federation, made or gone on with, until SIGTERM.

    FOLDER/federation.toml  settings
    FOLDER/ca/              the authority, its tokens, and the servers' certificates
    FOLDER/broker, store/   the broker and the store, which this process starts
    FOLDER/members, people/ who has joined, who may submit
    FOLDER/runs/RUN/        a run: its offer, files, state and results
    FOLDER/files, code/     uploaded files; code that the operator lets run here
    FOLDER/packing/         what is being packed of an upload by the page
    FOLDER/audit.jsonl      who did what
    FOLDER/believed.crt     the authorities that members believe for this host

All that must outlast the process is in FOLDER: after kill -9 the same command goes on.
"""

from __future__ import annotations

import logging
import socket
import ssl
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import Depends, FastAPI
from fastapi.security import HTTPAuthorizationCredentials

from tacit import file_lock
from tacit.errors import ConfigError, TacitError
from tacit_services.children.processes import Child, restart_if_dead, stopping
from tacit_services.disk import files
from tacit_services.enrollment.acl import aggregator_name
from tacit_services.enrollment.authority import CA, CERTIFICATE, KEY, CertificateAuthority
from tacit_services.enrollment.join_tokens import JoinTokens, TokenRefusedError
from tacit_services.federation import federation_settings, organisation
from tacit_services.federation.audit_log import AuditLog
from tacit_services.federation.broker import FederationBroker, certified
from tacit_services.federation.callers import Callers
from tacit_services.federation.checked_apart import checked_apart
from tacit_services.federation.federation_rest import HostDesks, create_app
from tacit_services.federation.file_pool import FilePool
from tacit_services.federation.host_packing import HostPacking
from tacit_services.federation.kept_rules import HOST
from tacit_services.federation.lingering import Lingering
from tacit_services.federation.member_control import MemberControl
from tacit_services.federation.member_desk import (
    MemberDesk,
    member_of_request,
    near_member_of_request,
)
from tacit_services.federation.members import Members
from tacit_services.federation.page.host_page import host_pages
from tacit_services.federation.people import People, Person
from tacit_services.federation.person_access import PERSON_TOKEN, PersonAccess
from tacit_services.federation.run_desk import RunDesk
from tacit_services.federation.run_proxy import RunProxy
from tacit_services.federation.run_records import RunRecord, RunRecords
from tacit_services.federation.run_sockets import RunSockets
from tacit_services.federation.run_window import RunWindow
from tacit_services.federation.stated_rules import StatedRules
from tacit_services.federation.statement_desk import StatementDesk
from tacit_services.federation.store import FederationStore
from tacit_services.federation.submissions import Submissions
from tacit_services.federation.supervisor import Rules, Supervisor
from tacit_services.offers.offer import OFFER
from tacit_services.transport import http_server
from tacit_services.transport.address import bind, split_host_port
from tacit_services.transport.front_door import FrontDoor
from tacit_services.transport.pinned_authority import PREFIX
from tacit_services.transport.tls import Tls

log = logging.getLogger("tacit.federation")
_SWEEP_SECONDS = 3600.0  # between two looks for uploads that no run names


class HostFolder:
    """The folder of a federation, whose one host holds its lock.

    authority: its certificate authority. settings: read when it was opened.
    """

    def __init__(self, path: Path, flags: Mapping[str, object]) -> None:
        """Open the federation in `path`, or make one there. Raises ConfigError."""
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self.settings = federation_settings.read(path, flags)
            if not (path / federation_settings.FILE).exists():
                federation_settings.write(path, self.settings)
            for name in ("broker", "store", "members", "people", "runs", "code"):
                (path / name).mkdir(exist_ok=True, mode=0o700)
        except OSError as error:
            raise ConfigError(f"{path}: {error.strerror or error}") from error
        self.authority = self._opened()

    def _opened(self) -> CertificateAuthority:
        place = self.path / "ca"
        if (place / CA).exists():
            return CertificateAuthority(place)
        return CertificateAuthority.create(place, f"tacit federation {socket.gethostname()}")

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Be its one host. Raises ConfigError where another process is."""
        refusal = ConfigError(f"{self.path}: another process serves it")
        with file_lock.locked(self.path / "lock", refusal):
            yield

    def certificate(self, name: str, hosts: Sequence[str] = ()) -> Path:
        """Return the folder of the certificate of `name`, made or renewed where need be."""
        with self.authority.locked():
            return certified(self.authority, name, hosts)


def serve(
    path: Path, flags: Mapping[str, object], say: Callable[[str], None], new_token: bool = True
) -> None:
    """Serve the federation in `path` until SIGTERM or SIGINT. say: prints a line at once.

    Raises TacitError.
    """
    if not hasattr(socket, "AF_UNIX"):  # at which the aggregators of runs serve REST
        raise ConfigError(f"{path}: a host needs Unix sockets, as Linux has; members run here, too")
    folder = HostFolder(path, flags)
    children: list[Child] = []
    with folder.locked(), ExitStack() as parts:
        store = FederationStore(path / "store")
        parts.callback(store.close)  # once its server was stopped
        interrupted = parts.enter_context(stopping(children))
        host = FederationHost(folder, store, children, parts)
        federation_settings.note_served(path, folder.settings)
        say(f"federation {path}: {folder.settings.url}/")
        if new_token:
            say(host.join_line())
        while not interrupted.wait(1.0):
            for child in children:
                restart_if_dead(child)
            host.sweep()


class FederationHost:
    """The parts of a running host, each built once, and closed by `parts` in order."""

    def __init__(
        self, folder: HostFolder, store: FederationStore, children: list[Child], parts: ExitStack
    ) -> None:
        """Start everything. Raises TacitError."""
        self._folder = folder
        settings = folder.settings
        path = folder.path
        listener = bind(settings.listen)  # a port in use is better said before anything starts
        shown = None if settings.show is None else bind(settings.show)
        self._believed = federation_settings.note_believed(path, settings)
        self._authority = federation_settings.authority(path, settings)
        web = self._web()
        self._tokens = JoinTokens(path / "members")
        self._audit = AuditLog(path / "audit.jsonl")
        members = Members(path / "members")
        people = People(path / "people")
        people.operator_token()
        access = PersonAccess(people)
        self._broker, self._rules = self._broker_and_rules(children)
        rules = self._rules
        self._store = settings.store or store.start(children).address
        parts.callback(rules.stop)
        records = RunRecords(path / "runs")
        self._sockets = sockets = parts.enter_context(closing(RunSockets(path / "runs")))
        lingering = None if shown is None else Lingering(rules, self._aggregator)
        supervisor = Supervisor(
            records, rules, sockets, self._aggregator, settings.parallel,
            lambda: members.roll().asked, lingering=lingering,
        )  # fmt: skip
        self._pool = pool = FilePool(path / "files")
        self._submissions = submissions = Submissions(
            records, pool, path / "code", partial(checked_apart, settings.data)
        )
        self._swept: float | None = None
        desk = RunDesk(records, supervisor, submissions, pool, self._audit, members.roll)
        control = MemberControl(
            members, people, self._tokens, folder.authority, rules, self._authority,
            settings.url, self._audit, desk.gone,
        )  # fmt: skip
        desks = HostDesks(
            self._authority, self._member_desk(members), desk,
            StatementDesk(records, self._audit), records, control, self._audit, pool,
            HostPacking(path / "packing", pool, path / "people" / "page.pem"),
            RunProxy(sockets), member_of_request(members), near_member_of_request(members),
            _person_by(access),
        )  # fmt: skip
        app = create_app((*desks.routers(), *host_pages()), settings.names, Callers(access).caller)
        inner = parts.enter_context(
            _https(app, folder.authority.folder / CA, web, lambda port: door.origin(port))
        )
        supervisor.start()
        parts.callback(supervisor.close)
        door = FrontDoor(listener, self._broker, inner)
        door.start()
        parts.callback(door.close)
        if shown is not None:
            _open_window(shown, partial(_newest, supervisor, sockets), parts)

    def join_line(self) -> str:
        """Return the line that lets members join, by a token of the settings' uses and hours.

        A host that is started again gives the same token while its time lasts.
        """
        settings = self._folder.settings
        token = self._own_token()
        if settings.join_file is not None:
            digest = self._authority.pin().removeprefix(PREFIX)
            files.write(settings.join_file, f"{token}.{digest}\n".encode(), files.SECRET)
        return f"tacit join {settings.url} --token {token} --ca {self._authority.pin()}"

    def sweep(self) -> None:
        """Remove old uploads that no run names; a look at most once an hour, and at the start."""
        now = time.monotonic()
        if self._swept is not None and now - self._swept < _SWEEP_SECONDS:
            return
        self._swept = now
        try:
            removed = self._pool.sweep(self._submissions.named())
        except (TacitError, OSError, ValueError, KeyError) as error:
            log.warning("uploads: %s; none was removed", error)
            return
        if removed:
            log.info("%d uploads that no run names were removed", len(removed))

    def _web(self) -> tuple[Path, Path]:
        """Return the files of the HTTPS server's certificate and key. Raises ConfigError."""
        settings = self._folder.settings
        bundle = self._folder.certificate(federation_settings.WEB, settings.names)
        if settings.certificate is None or settings.key is None:
            return bundle / CERTIFICATE, bundle / KEY
        pair = settings.certificate, settings.key
        _warn(organisation.complaint_of_web(*pair, self._authority.context(), settings.names[0]))
        return pair

    def _broker_and_rules(self, children: list[Child]) -> tuple[str, Rules]:
        """Return the broker's address and rules: an organisation's own, or one that starts."""
        folder = self._folder
        place = folder.path / "broker"
        address = folder.settings.broker
        if address is None:
            broker = FederationBroker(place, folder.authority, folder.settings.names)
            return broker.start(children).address, broker.rules()
        bundle = folder.certificate(HOST)
        tls = Tls(self._believed, bundle / CERTIFICATE, bundle / KEY)
        for node in address.split(","):
            for name in dict.fromkeys((split_host_port(node)[0], folder.settings.names[0])):
                _warn(organisation.complaint_of_broker(node, name, tls))
        return address, StatedRules(place)

    def _member_desk(self, members: Members) -> MemberDesk:
        days = self._folder.settings.certificate_days
        return MemberDesk(self._folder.authority, self._tokens, members, days)

    def _own_token(self) -> str:
        settings = self._folder.settings
        path = self._folder.path / "members" / "join-token"
        try:
            token = path.read_text(encoding="ascii").strip()
            self._tokens.check(token)
            return token
        except (OSError, UnicodeDecodeError, TokenRefusedError):
            now = time.time()
            name = f"serve-{int(now * 1000)}"
            until = now + 3600 * settings.token_hours
            token = self._tokens.add(name, uses=settings.token_uses, until=until)
            files.write(path, f"{token}\n".encode(), files.SECRET)
            return token

    def _aggregator(self, record: RunRecord) -> Child:
        """Return the process of a run's aggregator, not started."""
        run = record.name
        place = self._folder.path / "runs" / run
        state = place / "state"
        state.mkdir(exist_ok=True, mode=0o700)
        settings = self._folder.settings
        bundle = self._folder.certificate(aggregator_name(run))
        variables = {
            "TACIT_RUN_FILE": str(place / OFFER),
            "TACIT_OFFER": str(place),
            "TACIT_RUN_ID": run,
            "TACIT_BROKER": self._broker,
            "TACIT_TLS_CA": str(self._believed if settings.broker else bundle / CA),
            "TACIT_TLS_CERT": str(bundle / CERTIFICATE),
            "TACIT_TLS_KEY": str(bundle / KEY),
            "TACIT_STORE": self._store,
            "TACIT_OUT": str(place / "out"),
            "TACIT_HTTP": self._sockets.address(run),
            "TACIT_TOKEN_FILE": str(self._sockets.token_file(run)),
            "TACIT_RECEIPTS": str(state / "receipts.key"),
            "TACIT_TRUSTED": str(state / "trusted.db"),
            "TACIT_LABELS": str(state / "labels.safetensors"),
            "TACIT_JOURNAL_FILE": str(place / "journal"),
            "TACIT_THREADS": "1",
            "TACIT_LOG": settings.log,
        }
        if settings.show is not None:
            variables["TACIT_LINGER"] = "true"
        if settings.data is not None:
            variables["TACIT_DATA"] = str(settings.data)
        return Child(f"run {run}", ["tacit", "aggregator"], variables, place / "aggregator.log")


def _open_window(
    listener: socket.socket, newest: Callable[[], Path | None], parts: ExitStack
) -> None:
    """Show the newest run at a port of its own, until `parts` are closed. Raises ServiceError."""
    window = RunWindow(listener, newest)
    window.start()
    parts.callback(window.close)


def _newest(supervisor: Supervisor, sockets: RunSockets) -> Path | None:
    """Return the socket of the newest run's aggregator; None: none is there."""
    run = supervisor.newest()
    return None if run is None else sockets.path(run)


def _warn(complaint: str) -> None:
    """Log what is wrong, if anything is. Runs go on meanwhile."""
    if complaint:
        log.warning("%s", complaint)


def _person_by(access: PersonAccess) -> Callable[..., Person]:
    """Return FastAPI's dependency that gives who asks, by their token; 401 for nobody's."""

    def person(
        credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(PERSON_TOKEN)],
    ) -> Person:
        return access.person(credentials)

    return person


@contextmanager
def _https(
    app: FastAPI, members_ca: Path, web: tuple[Path, Path], origin: Callable[[int], str | None]
) -> Iterator[str]:
    """Serve `app` at a loopback port in a thread of its own; yields the address.

    members_ca: has signed the certificates that members show. web: the server's own and its key.
    origin: the address of the client whose connection comes from a port of the front door's.
    """
    listener = bind("127.0.0.1:0")
    certificate, key = web
    host, port = listener.getsockname()[:2]
    server = http_server.HttpServer(
        app,
        origin=origin,
        timeout_graceful_shutdown=1,
        ssl_certfile=certificate,
        ssl_keyfile=key,
        ssl_ca_certs=members_ca,
        ssl_cert_reqs=ssl.CERT_OPTIONAL,
    )
    with http_server.in_thread(server, listener, "https"):
        yield f"{host}:{port}"
