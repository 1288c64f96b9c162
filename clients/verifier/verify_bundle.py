"""Check a bundle of evidence by docs/verify.md alone: verify_bundle.py BUNDLE [--anchor FILE]…

Its author had that page, and nothing of tacit. It leaves out the fold, the printed page, the card's
words and the zip's own bytes. It needs `cryptography` and `dp-accounting`.
"""

import argparse
import base64
import collections
import functools
import hashlib
import json
import math
import re
import struct
import zipfile
import zlib
from pathlib import Path
from typing import Any

from cryptography import exceptions, x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from dp_accounting.pld import common
from dp_accounting.pld import privacy_loss_distribution as pld

DAMAGE = (ArithmeticError, AttributeError, EOFError, LookupError, MemoryError, OSError, TypeError)
DAMAGE += (RuntimeError, ValueError, struct.error, zlib.error, zipfile.BadZipFile)
DAMAGE += (exceptions.InvalidSignature, exceptions.UnsupportedAlgorithm, x509.InvalidVersion)
HALF = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551 // 2  # of P-256's order
DER = (serialization.Encoding.DER, serialization.PublicFormat.SubjectPublicKeyInfo)
FORM = {"sort_keys": True, "separators": (",", ":"), "ensure_ascii": False, "allow_nan": False}
LAW = "((?:discrete_)?gaussian|knorm)(:question|:training|:judging|:judging-all)?(:returned)?"
OBJECTS = """chain count first head rows | rows count head mechanism q secret session z
bundle at definition edges files format journal key model_sha256 names run self_stated which
statement at chain code consents definition edge ended format key messages policy privacy run
privacy accountant adjacency delta epsilon guarantee mechanism noise_at unit
journal begins_after head records state | messages count head last unanswered
consents answer at by_policy offer withdrawn | code files libraries version"""
PRIVACY = ["guarantee", "unit", "adjacency", "noise_at", "trusted", "delta", "epsilon"]
KEYS = {name: keys for name, *keys in map(str.split, re.split("[|\n]", OBJECTS))}
canonical = json.JSONEncoder(**FORM).encode


def need(*holds: object) -> None:
    """Refuse the part that is being checked unless all of these hold."""
    if not all(holds):
        raise ValueError("does not hold")


def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Make an object of pairs whose keys all stand once."""
    need(len(dict(pairs)) == len(pairs))
    return dict(pairs)


def sha(*data: bytes | str) -> str:
    """Hash joined bytes; a text is another hash."""
    joined = b"".join(bytes.fromhex(item) if isinstance(item, str) else item for item in data)
    return hashlib.sha256(joined).hexdigest()


def identity(certificate: x509.Certificate) -> tuple[str, str]:
    """Give a certificate's name, and the hash that an anchor has of it."""
    if certificate.issuer == certificate.subject:
        return "authority", certificate.fingerprint(hashes.SHA256()).hex()
    [name] = certificate.subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return name.value, sha(certificate.public_key().public_bytes(*DER))


def chained(chain: dict[str, Any]) -> tuple[list[str], list[Any]]:
    """Check a ledger's chain; give its heads, and its charges one by one."""
    heads, charges = [chain["first"]], []
    for row in chain["rows"]:
        texts = [row[key].encode() for key in ("q", "z", "mechanism")]
        fields = [bytes.fromhex(row["session"]), *texts, bytes([row["secret"]])]
        link = b"".join(len(field).to_bytes(4) + field for field in fields)
        for n in range(len(charges), len(charges) + row["count"]):
            heads.append(sha(heads[n], n.to_bytes(8), link))
        law, side, back = re.fullmatch(LAW, row["mechanism"]).groups()
        q, z = float.fromhex(row["q"]), float.fromhex(row["z"])
        noise = math.log1p(q * math.expm1(1 / z)) if z and law == "knorm" else z
        item = fields[0], law, side, q, noise, row["secret"]
        charges += [(-1 if back else 1, item)] * row["count"]
        need(row["count"] > 0, heads[-1] == row["head"], len(fields[0]) == 16)
    need(heads[-1] == chain["head"], len(charges) == chain["count"])
    return heads, charges


def cover(stated: float | None, charges: list[Any], delta: float) -> None:
    """Check that an epsilon (None: no bound) is at most 2 % below that of charges, by PLD."""
    left: Any = collections.Counter()
    for sign, item in charges:
        left[item] += sign
        need(left[item] >= 0)
    if stated is None:
        return
    need(*(noise and secret for *_, noise, secret in +left))
    pure = [noise for _, law, _, _, noise, _ in +left if law == "knorm"]
    step = min(pure) / 64 if 0 < len(pure) == len(+left) else 1e-4 if stated > 0.5 else 1e-5
    for other in (":training", ":judging"):
        total = pld.identity(step)
        for (_, law, _, q, noise, _), count in [o for o in (+left).items() if o[0][2] != other]:
            bound = common.DifferentialPrivacyParameters(noise)
            if law == "knorm":
                item = pld.from_privacy_parameters(bound, step)
            else:
                item = pld.from_gaussian_mechanism(noise, 1, True, step, sampling_prob=q)
            total = total.compose(item.self_compose(count))
        need(stated >= 0.98 * total.get_epsilon_for_delta(delta))


class Bundle:
    """A bundle; its checks raise an error of DAMAGE, and may give further checks."""

    def files(self, path: Path, *anchors: Path) -> list[Any]:
        """Read a folder or a zip, and check the host's signature and list of files."""
        if path.is_file():
            archive = zipfile.ZipFile(path)
            self.data = {name: archive.read(name) for name in archive.namelist()}
        else:
            entries = [item for item in path.rglob("*") if item.is_file()]
            self.data = {item.relative_to(path).as_posix(): item.read_bytes() for item in entries}
        self.authority = x509.load_pem_x509_certificate(self.data["certificates/authority.pem"])
        self.authority.verify_directly_issued_by(self.authority)
        self.edges, self.places, self.facts = {}, {}, {identity(self.authority)}
        self.host, named_by = self.signed("bundle", "bundle.json", "host")
        its = {name: sha(data) for name, data in self.data.items() if name != "bundle.json"}
        need(named_by == ("evidence", self.host["key"]), its == self.host["files"])
        need({"page.html", "code/host.json", "code/sbom.cdx.json"} <= its.keys())
        checks = [(self.statement, e) for e in self.host["edges"] if f"statements/{e}.json" in its]
        checks += [(self.results,)] + [(self.journal,)] * (self.host["journal"] is not None)
        return [*checks, (self.anchors, *anchors)]

    def signed(self, kind: str, name: str, owner: str) -> tuple[dict[str, Any], tuple[str, str]]:
        """Check a signed document; give its content, and who has signed it."""
        text, code = (json.loads(self.data[name])[key] for key in ("content", "signature"))
        r, s = utils.decode_dss_signature(base64.b64decode(code))
        signature = utils.encode_dss_signature(r, s)
        outer = {"content": text, "signature": base64.b64encode(signature).decode()}
        need(f"{json.dumps(outer, ensure_ascii=False)}\n".encode() == self.data[name], s <= HALF)
        signer = x509.load_pem_x509_certificate(self.data[f"certificates/{owner}.pem"])
        signer.verify_directly_issued_by(self.authority)
        title = f"tacit {kind} 1\n".encode()
        signer.public_key().verify(signature, title + text.encode(), ec.ECDSA(hashes.SHA256()))
        content = json.loads(text, object_pairs_hook=unique)
        inner = [(kind, content), *content.items(), *content.get("chain", {}).items()]
        for part, value in [
            item for item in inner if item[0] in KEYS and item != ("journal", None)
        ]:
            need(*(sorted(o) == KEYS[part] for o in (value if type(value) is list else [value])))
        need(
            canonical(content["format"]) == "1", isinstance(signer.public_key().curve, ec.SECP256R1)
        )
        self.facts |= {identity(signer), (owner, text)} if kind == "statement" else set()
        return content, identity(signer)

    def statement(self, edge: str) -> None:
        """Check an edge's certificate and statement."""
        content, named_by = self.signed("statement", f"statements/{edge}.json", edge)
        need(named_by == (edge, sha(base64.b64decode(content["key"]))), content["edge"] == edge)
        need(content["definition"] == sha(self.data["definition/agreed.json"]))
        need(content["run"] == self.host["run"])
        heads, charges = chained(content["chain"])
        cover(content["privacy"]["epsilon"], charges, content["privacy"]["delta"])
        if "definition/offer.json" in self.data and content["messages"]["count"]:
            offer = json.loads(self.data["definition/offer.json"]).items()
            offered = sha(
                canonical({key: item for key, item in offer if key != "signature"}).encode()
            )
            need(
                any((o["offer"], o["answer"]) == (offered, "accepted") for o in content["consents"])
            )
        self.edges[edge] = content, heads, charges

    def results(self) -> None:
        """Check definitions, weights, metrics, and what edges have spent."""
        names = "definition/stated", "definition/agreed", "results/summary", "model/model"
        stated, agreed, summary, model = (json.loads(self.data[f"{n}.json"]) for n in names)
        texts = [canonical(item).encode() for item in (stated, agreed)]
        need(texts == [self.data[f"{name}.json"] for name in names[:2]])
        pairs = [(agreed, stated)]
        for part, whole in pairs:
            pairs += [(part[key], whole[key]) for key in part] if isinstance(part, dict) else []
            need(isinstance(part, dict) or part == whole)
        ours, its = (sha(self.data[f"{item}/model.safetensors"]) for item in ("results", "model"))
        which, card = self.host["which"], self.data["model/README.md"].decode()
        chosen = summary if which == "last" else summary["models"][which]
        need(summary["run_file_sha256"] == self.host["definition"] == sha(b"tacit-run-1", texts[0]))
        need(chosen["model_sha256"] == model["trained_sha256"] == self.host["model_sha256"] == ours)
        need(model["weights_sha256"] == its, ours in card, its in card)
        need({*PRIVACY} == model["privacy"].keys())
        expected = [chosen["metrics"], {key: summary["privacy"][key] for key in model["privacy"]}]
        need(canonical([model["metrics"], model["privacy"]]) == canonical(expected))
        for edge, item in summary["privacy"]["edges"].items():
            need(edge in self.edges or not item["pushes"])
            if edge in self.edges:
                (content, heads, charges), place = self.edges[edge], item["charged"]["count"]
                need(place >= 0, heads[place] == item["charged"]["head"])
                need(item["delta"] == content["privacy"]["delta"])
                cover(item["epsilon_pld"], charges[:place], item["delta"])
                cover(summary["privacy"]["epsilon"], charges[:place], item["delta"])
                need(item["delta"] == summary["privacy"]["delta"])
                self.places[edge] = place

    def journal(self) -> list[Any]:
        """Check the journal's chain."""
        content = self.host["journal"]
        header, *lines, end = self.data["journal/chain.csv"].decode().split("\n")
        first = sha(f"tacit journal\0{self.host['run']}\0".encode(), content["state"])
        head = functools.reduce(sha, (f"{line}\n".encode() for line in lines), first)
        need(header == "position,edge,number,kind,sha256,charges,head", end == "")
        rows = [line.split(",") for line in lines]
        need(*(int(row[0]) == n for n, row in enumerate(rows, content["begins_after"] + 1)))
        need(head == content["head"], len(lines) == content["records"])
        edges = {row[1] for row in rows} - {"operator"} | self.edges.keys()
        return [(self.sent, edge, [row for row in rows if row[1] == edge]) for edge in edges]

    def sent(self, edge: str, rows: list[list[str]]) -> None:
        """Check an edge's lines in the journal with its statement."""
        numbers = [int(row[2]) for row in rows]
        updates = [(int(row[5]), row[6]) for row in rows if row[3] == "update"]
        need(numbers == sorted({*numbers}), edge in self.edges or not updates)
        if edge in self.edges:
            content, heads, _ = self.edges[edge]
            unanswered = content["messages"]["unanswered"]
            heard = [(int(row[2]), row[4]) for row in rows if unanswered.get(row[2]) != row[4]]
            links = (n.to_bytes(8) + bytes.fromhex(message) for n, message in heard)
            head = functools.reduce(sha, links, sha(b"tacit messages"))
            last = heard[-1][0] if heard else 0
            same = {"count": len(heard), "head": head, "last": last, "unanswered": unanswered}
            need(same == content["messages"] or self.host["journal"]["begins_after"])
            name = json.loads(self.data["definition/stated.json"])["algorithm"]["name"]
            loose, places = name in ("adp2sgd", "a2dp2sgd", "vafl"), [place for place, _ in updates]
            need(not places or self.places.get(edge, -1) >= places[-1])
            need(places == sorted(places if loose else {*places} - {0}))
            need(*(place >= 0 and heads[place] == head for place, head in updates))

    def anchors(self, *paths: Path) -> None:
        """Check that the bundle is of those who gave the anchors."""
        anchors: set[Any] = set()
        for data in map(Path.read_bytes, paths):
            if data.startswith(b"{"):
                text = json.loads(data)["content"]
                entries = {(json.loads(text)["edge"], text)}
            elif b"-----BEGIN" in data:
                entries = {*map(identity, x509.load_pem_x509_certificates(data))}
            else:
                lines = [line for line in data.decode().splitlines() if line and line[0] != "#"]
                entries = {re.fullmatch(r"(\S+) sha256:(\S+)", line).groups() for line in lines}
            need(entries)
            anchors |= entries
        edges = {name for name, _ in anchors} - {"authority"}
        need(anchors <= self.facts, not edges or edges == {*self.host["edges"]})


def refused(bundle: Path, anchors: list[Path]) -> list[str]:
    """Check a bundle; give a reason for each part that does not hold."""
    reasons, parts = [], [(Bundle().files, bundle, *anchors)]
    for check, *arguments in parts:
        try:
            parts += check(*arguments) or []
        except DAMAGE as error:
            reasons.append(f"{check.__name__} {arguments[:1]!a}: {error!a}")
    return reasons


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("bundle", type=Path)
    parser.add_argument("--anchor", type=Path, action="append", default=[])
    given = parser.parse_args()
    entries = refused(given.bundle, given.anchor)
    print(*entries, "refused" if entries else "ok", sep="\n")
    raise SystemExit(5 if entries else 0)
