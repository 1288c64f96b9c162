"""The routes of the host's page: `/` lists the runs, `/runs/RUN/` is the page of one.

The files say nothing of the federation. What they show they ask of REST, with the reader's token.
"""

from __future__ import annotations

from collections.abc import Iterator

from fastapi import APIRouter, Request, Response

from tacit_services.aggregator.page import static_files
from tacit_services.aggregator.page.static_files import StaticFiles

_FIRST = "federation.html"
_FIRST_OF_RUN = "index.html"


def host_pages() -> Iterator[APIRouter]:
    """Yield the routes of the page, of each run's page, and of Swagger UI."""
    yield _pages()
    yield static_files.interface()


def _pages() -> APIRouter:
    pages = StaticFiles.of(
        ("tacit_services.aggregator.page", "static"), ("tacit_services.federation.page", "static")
    )
    router = static_files.routes_of(pages, "/", "/page", _FIRST)

    @router.get("/runs/{run}/")
    def run(request: Request, run: str) -> Response:
        return pages.answer(request, _FIRST_OF_RUN)

    return router
