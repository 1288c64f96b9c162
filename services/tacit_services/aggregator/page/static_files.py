"""The files of the page and of Swagger UI, with headers that confine them.

They can load nothing from elsewhere and run nothing inline.
"""

from __future__ import annotations

from importlib.resources import files
from pathlib import PurePath

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


def page() -> APIRouter:
    """Return the routes of the page: `/`, and its files under `/page/`."""
    return _routes_of("static", "/", "/page", "index.html", _POLICY.format(images=""))


def interface() -> APIRouter:
    """Return the routes of Swagger UI on this REST interface: `/docs`, and its files under it.

    Its style sheet has pictures in it, as `data:`.
    """
    return _routes_of("swagger", "/docs", "/docs", "docs.html", _POLICY.format(images=" data:"))


def _routes_of(folder: str, root: str, prefix: str, first: str, policy: str) -> APIRouter:
    """Return `first` at `root`, and every file of `folder` under `prefix`."""
    router = APIRouter(include_in_schema=False)
    paths = [path for path in (files(__package__) / folder).iterdir() if path.is_file()]
    content = {path.name: path.read_bytes() for path in paths}
    headers = _HEADERS | {"Content-Security-Policy": policy}

    def answer(request: Request, name: str) -> Response:
        kind = _TYPES[PurePath(name).suffix]
        return unless_known(request, Response(content[name], headers=headers, media_type=kind))

    @router.get(root)
    def index(request: Request) -> Response:
        return answer(request, first)

    @router.get(f"{prefix}/{{name}}")
    def file(request: Request, name: str) -> Response:
        if name in content:
            return answer(request, name)
        return problem(404, "no such file")

    return router
