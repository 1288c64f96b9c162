"""The files of the pages and of Swagger UI, with headers that confine them.

They can load nothing from elsewhere and run nothing inline. A page of tacit's own is written as the
parts in which it differs from the others, each behind a line `<!-- name -->`: frame.html has the
rest.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib.resources import files
from pathlib import PurePath
from string import Template

from fastapi import APIRouter, Request, Response

from tacit_services.transport.problems import problem, unless_known

_TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".LICENSE": "text/plain; charset=utf-8",
    ".NOTICE": "text/plain; charset=utf-8",
    ".txt": "text/plain; charset=utf-8",
}
_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'{images}; "
    "connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = {
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}

_PARTS = b"<!-- title -->"  # the first line of a page that is written as parts
_PART = re.compile(r"^<!-- (\w+) -->$", re.MULTILINE)


class StaticFiles:
    """Files by their names, each answered with the headers that confine it."""

    def __init__(self, content: Mapping[str, bytes], policy: str) -> None:
        """policy: the Content-Security-Policy."""
        self._content = content
        self._headers = _HEADERS | {"Content-Security-Policy": policy}

    @classmethod
    def of(cls, *folders: tuple[str, str], images: str = "") -> StaticFiles:
        """Return the files of folders, each of a package. images: further sources of pictures."""
        places = [files(package) / folder for package, folder in folders]
        paths = [path for place in places for path in place.iterdir() if path.is_file()]
        content = {path.name: _framed(path.read_bytes()) for path in paths}
        return cls(content, _POLICY.format(images=images))

    def answer(self, request: Request, name: str) -> Response:
        """Return a file; 404 where there is none of this name."""
        if name not in self._content:
            return problem(404, "no such file")
        kind = _TYPES[PurePath(name).suffix]
        answer = Response(self._content[name], headers=self._headers, media_type=kind)
        return unless_known(request, answer)


def _framed(content: bytes) -> bytes:
    """Return a file as it is served: the parts of a page stand in the frame."""
    if not content.startswith(_PARTS):
        return content
    _, *parts = _PART.split(content.decode())
    texts = (text.strip() for text in parts[1::2])
    frame = (files(__package__) / "frame.html").read_text(encoding="utf-8")
    return Template(frame).substitute(dict(zip(parts[::2], texts, strict=True))).encode()


def page() -> APIRouter:
    """Return the routes of the page: `/`, and its files under `/page/`."""
    return routes_of(StaticFiles.of((__package__, "static")), "/", "/page", "index.html")


def interface() -> APIRouter:
    """Return the routes of Swagger UI on this REST interface: `/docs`, and its files under it.

    Its style sheet has pictures in it, as `data:`.
    """
    shown = StaticFiles.of((__package__, "swagger"), images=" data:")
    return routes_of(shown, "/docs", "/docs", "docs.html")


def routes_of(shown: StaticFiles, root: str, prefix: str, first: str) -> APIRouter:
    """Return routes of `first` at `root`, and of every file under `prefix`."""
    router = APIRouter(include_in_schema=False)

    @router.get(root)
    def index(request: Request) -> Response:
        return shown.answer(request, first)

    @router.get(f"{prefix}/{{name}}")
    def file(request: Request, name: str) -> Response:
        return shown.answer(request, name)

    return router
