"""The page's files, with headers that let it load nothing from elsewhere and run nothing inline."""

from __future__ import annotations

from importlib.resources import files

from fastapi import APIRouter, Request, Response

from tacit_services.transport.problems import problem, unless_known

_TYPES = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "uplot.css": "text/css; charset=utf-8",
    "uplot.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
    "uplot.LICENSE": "text/plain; charset=utf-8",
    **{
        f"{name}.js": "text/javascript; charset=utf-8"
        for name in ("page", "chart", "edges", "words", "parts")
    },
}
_HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; "
    "img-src 'self'; connect-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-cache",
}


def page() -> APIRouter:
    """The routes of the page: `/`, and its files under `/page/`."""
    router = APIRouter(include_in_schema=False)
    folder = files(__package__) / "static"
    content = {name: (folder / name).read_bytes() for name in _TYPES}

    def answer(request: Request, name: str) -> Response:
        return unless_known(
            request, Response(content[name], headers=_HEADERS, media_type=_TYPES[name])
        )

    @router.get("/")
    def index(request: Request) -> Response:
        return answer(request, "index.html")

    @router.get("/page/{name}")
    def file(request: Request, name: str) -> Response:
        return answer(request, name) if name in content else problem(404, "no such file")

    return router
