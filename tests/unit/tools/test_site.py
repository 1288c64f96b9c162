"""The site of the documents: its links, its generated pages, and that it loads nothing from elsewhere."""

from __future__ import annotations

import pytest
from tacit_services.cli.main import app
from typer.main import get_command

from tools import site

REPOSITORY = "https://forge.example/tacit"


@pytest.mark.parametrize(
    ("origin", "link", "expected"),
    [
        ("docs/rest.md", "[a](privacy.md#units)", "[a](privacy.md#units)"),
        ("docs/rest.md", "[a](../CHANGELOG.md)", "[a](changelog.md)"),
        ("docs/rest.md", "[a](../README.md)", "[a](index.md)"),
        ("docs/rest.md", "[a](https://x.example/y.md)", "[a](https://x.example/y.md)"),
        ("docs/rest.md", "![a](pictures/page.png)", "![a](pictures/page.png)"),
        ("docs/tutorials/a.md", "[a](../rest.md#x)", "[a](../rest.md#x)"),
        ("docs/tutorials/a.md", "[a](b.ipynb)", "[a](b.md)"),
        ("docs/tutorials/a.md", f"[{site.DOWNLOAD}](a.ipynb)", f"[{site.DOWNLOAD}](a.ipynb)"),
        ("docs/python.md", "[a](tutorials/b.ipynb)", "[a](tutorials/b.md)"),
        ("CHANGELOG.md", "[a](docs/rest.md)", "[a](rest.md)"),
        ("lab/README.md", "[a](../docs/rest.md#rest)", "[a](rest.md#rest)"),
    ],
)
def test_a_link_to_a_page_leads_to_that_page(origin: str, link: str, expected: str) -> None:
    assert site.linked(f"see {link}.", origin, REPOSITORY) == f"see {expected}."


def test_a_notebook_is_a_page_with_its_pictures_and_a_link_to_itself() -> None:
    parts = site.notebook_page(site.ROOT / site.NOTEBOOKS / "comparing-algorithms.ipynb")

    page = parts.pop("tutorials/comparing-algorithms.md")
    assert isinstance(page, str)
    assert page.startswith("# Comparing algorithms")
    assert f"[{site.DOWNLOAD}](comparing-algorithms.ipynb)" in page
    assert "```python" in page
    assert "<table" in page
    assert parts
    for name, picture in parts.items():
        assert isinstance(picture, bytes)
        assert picture.startswith(b"\x89PNG")
        assert f"({name.removeprefix('tutorials/')})" in page


def test_a_link_to_a_source_file_leads_to_the_repository_or_is_text() -> None:
    link = "[wire](../protos/tacit/v1/wire.proto)"

    assert site.linked(link, "docs/rest.md", REPOSITORY) == (
        f"[wire]({REPOSITORY}/blob/HEAD/protos/tacit/v1/wire.proto)"
    )
    assert site.linked(link, "docs/rest.md", "") == (
        '<span title="protos/tacit/v1/wire.proto">wire</span>'
    )


def test_the_page_of_the_command_line_has_every_command_and_option() -> None:
    page = site.commands_page()
    commands = dict(site.leaves("tacit", get_command(app)))

    assert len(commands) > 40
    for name, command in commands.items():
        assert f"\n## {name}\n" in page
        for parameter in command.params:
            if parameter.param_type_name == "option" and not parameter.hidden:
                assert f"`{parameter.opts[0]}" in page, (name, parameter.opts)


@pytest.mark.parametrize(
    ("element", "loaded"),
    [
        ('<script src="https://cdn.example/a.js">', True),
        ('<link rel="stylesheet" href="//fonts.example/css">', True),
        ('<img src="pictures/page.png">', False),
        ('<a href="https://flower.ai">', False),
        ('<link rel="canonical" href="https://tacit.example/">', False),
    ],
)
def test_what_a_page_would_load_from_another_host_is_noticed(element: str, loaded: bool) -> None:
    assert bool(site.foreign(f"<p>{element}</p>")) == loaded
