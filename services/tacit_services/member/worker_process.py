"""The process of a member's worker, as its member starts it."""

from __future__ import annotations

from urllib.parse import urlsplit

from tacit_services import python_child
from tacit_services.children.processes import Child
from tacit_services.member.data_ledger import DataLedger
from tacit_services.member.member_state import Membership, MemberState
from tacit_services.member.what_left import LEFT
from tacit_services.offers.offer import OFFER
from tacit_services.transport.proxy import Proxies

_HTTPS = 443


def worker_process(
    state: MemberState,
    membership: Membership,
    ledger: DataLedger,
    proxies: Proxies,
    hours: str | None,
    run: str,
) -> Child:
    """Return the process that works in `run`, not started; the ledger is lent to it.

    Where the member has no rows of its own, it opens the ledger of its part itself. It reaches the
    host as its member does, by the proxy that `proxies` have before it. hours: of the owner's
    policy, in which it may work, or None for always. Raises TacitError where the rows cannot be
    read as the run reads them, or the ledger is in use.
    """
    # With torch, for which a member need not wait that works in no run.
    from tacit_services.member.run_here import definition_of

    owned = definition_of(state, run).source.owned(membership.number)
    loan = None if owned is None else ledger.loan(owned)
    place = urlsplit(membership.url)
    host = place.hostname or ""
    port = place.port or _HTTPS
    proxy = proxies.between(host, port)
    folder = state.run(run)
    tls = state.tls
    variables = {
        "TACIT_RUN_FILE": str(folder / OFFER),
        "TACIT_RUN_ID": run,
        "TACIT_BROKER": f"{_in_address(host)}:{port}",
        "TACIT_PROXY": "" if proxy is None else proxy.url,
        "TACIT_NO_PROXY": "",
        "TACIT_TLS_CA": str(tls.ca),
        "TACIT_TLS_CERT": str(tls.cert),
        "TACIT_TLS_KEY": str(tls.key),
        "TACIT_IDENTITIES": membership.published or str(folder / "identities"),
        "TACIT_IDENTITY": str(membership.number),
        "TACIT_HEALTH_FILE": str(folder / "health.json"),
        "TACIT_LEFT_FILE": str(folder / LEFT),
        "TACIT_THREADS": "1",
        "OMP_NUM_THREADS": "1",
    }
    if membership.policy is not None:
        variables["TACIT_POLICY"] = membership.policy
    if membership.published is not None:
        variables["TACIT_DATA"] = membership.data
    words = [str(state.folder), run, "" if loan is None else loan.text(), hours or ""]
    command = python_child.command("tacit_services.member.run_worker", *words)
    inherits = () if loan is None else loan.descriptors
    return Child(f"run {run}", command, variables, folder / "worker.log", inherits=inherits)


def _in_address(host: str) -> str:
    return f"[{host}]" if ":" in host else host
