"""Hooks of mkdocs.yml: the pages of the site that no file in docs/ has, and its links.

The documents point at each other as files of the repository. On the site a link to another page
leads to that page, and a link to a source file leads to the repository (`DOCS_REPOSITORY`). Without
that address it is text. A notebook becomes a page with the outputs that it has in the repository.
"""

from __future__ import annotations

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path, PurePosixPath
from typing import TYPE_CHECKING, Any, Literal, get_args, get_origin

if TYPE_CHECKING:
    from mkdocs.config.defaults import MkDocsConfig
    from mkdocs.structure.files import Files
    from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parent.parent
# Files beside docs/ that are pages of the site.
BESIDE = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "lab/README.md": "laboratory.md",
}
HOME = {"README.md", "docs/README.md"}
COMMANDS = "commands.md"
NOTEBOOKS = "docs/tutorials"
DOWNLOAD = "This page as a notebook"
_LINK = re.compile(r"(!?)\[([^\[\]]*)\]\(([^)\s:#]+)(#[^)]*)?\)")
_FENCED = re.compile(r"(^```.*?^```[^\n]*$)", re.M | re.S)
_LOADED = re.compile(
    r"<(?:script|img|iframe|link)\b[^>]*\b(?:src|href)=[\"']?(?:https?:)?//[^>]*>", re.I
)
_NESTED = re.compile(r"^ {2,3}(?=[-*] )", re.M)


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages that no file in docs/ has."""
    from mkdocs.structure.files import File

    for origin, name in BESIDE.items():
        content = (ROOT / origin).read_text(encoding="utf-8")
        files.append(File.generated(config, name, content=content))
    files.append(File.generated(config, COMMANDS, content=commands_page()))
    for path in sorted((ROOT / NOTEBOOKS).glob("*.ipynb")):
        for name, part in notebook_page(path).items():
            files.append(File.generated(config, name, content=part))
    return files


def notebook_page(path: Path) -> dict[str, str | bytes]:
    """Return the page of a notebook and its pictures, by their names on the site."""
    from nbconvert import MarkdownExporter

    text, resources = MarkdownExporter().from_filename(str(path))
    folder = path.parent.relative_to(ROOT / "docs").as_posix()
    parts: dict[str, str | bytes] = {}
    for name, picture in resources["outputs"].items():
        own_name = f"{path.stem}-{name}"
        text = text.replace(f"({name})", f"({own_name})")
        parts[f"{folder}/{own_name}"] = picture
    whole = f"[{DOWNLOAD}]({path.name})" + "{ download }"
    head, _, rest = text.lstrip().partition("\n")
    return {f"{folder}/{path.stem}.md": f"{head}\n\n{whole}\n\n{rest}", **parts}


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:
    """Return a page with links of the site, and nested lists as Python-Markdown reads them."""
    origins = {name: origin for origin, name in BESIDE.items()}
    origin = origins.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = _FENCED.split(markdown)
    for place in range(0, len(parts), 2):
        parts[place] = _NESTED.sub("    ", linked(parts[place], origin, config.repo_url or ""))
    return "".join(parts)


def on_post_build(config: MkDocsConfig) -> None:
    """Raise PluginError where a page would load something from elsewhere: it must work offline."""
    from mkdocs.exceptions import PluginError

    for page in sorted(Path(config.site_dir).rglob("*.html")):
        for element in foreign(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page.name}: {element}: is loaded from elsewhere")


def foreign(html: str) -> list[str]:
    """Return the elements of a page that a browser would load from another host."""
    return [element for element in _LOADED.findall(html) if 'rel="canonical"' not in element]


def linked(text: str, origin: str, repository: str) -> str:
    """Return the text of the file `origin` with links that lead somewhere on the site."""

    page_folder = posixpath.dirname(origin.removeprefix("docs/")) if origin[:5] == "docs/" else ""

    def below(page: str) -> str:
        return posixpath.relpath(page, page_folder) if page_folder else page

    def on_site(match: re.Match[str]) -> str:
        picture, words, path, anchor = match.groups(default="")
        target = posixpath.normpath(str(PurePosixPath(origin).parent / path))
        if target.startswith(f"{NOTEBOOKS}/") and words != DOWNLOAD:
            target = target.replace(".ipynb", ".md")
        if target in HOME:
            return f"[{words}]({below('index.md')})"
        if target in BESIDE:
            return f"[{words}]({below(BESIDE[target])}{anchor})"
        if target.startswith("docs/"):
            return f"{picture}[{words}]({below(target.removeprefix('docs/'))}{anchor})"
        if repository:
            return f"[{words}]({repository.rstrip('/')}/blob/HEAD/{target}{anchor})"
        return f'<span title="{target}">{words}</span>'

    return _LINK.sub(on_site, text)


def commands_page() -> str:
    """Return the page of the command line, read from the parser of `tacit`."""
    os.environ.setdefault("COLUMNS", "100")
    from tacit_services.cli.main import app
    from typer.main import get_command

    entries = "\n".join(
        entry
        for name, command in leaves("tacit", get_command(app))
        for entry in _entry(name, command)
    )
    return (
        "# Command line\n\nA reference, made from the parser of `tacit`. "
        "Every command takes `--help`. Exit codes: [settings](settings.md#exit-codes).\n\n"
        + entries
    )


def leaves(name: str, command: Any) -> Iterator[tuple[str, Any]]:
    """Yield the commands below `command` that run something, each with its name."""
    inner: dict[str, Any] = getattr(command, "commands", {})
    if not inner:
        yield name, command
    for word, subcommand in inner.items():
        yield from leaves(f"{name} {word}", subcommand)


def _entry(name: str, command: Any) -> Iterator[str]:
    usage = [name, *(_argument(each) for each in command.params if _is_argument(each))]
    yield f"## {name}\n\n{command.help or ''}\n\n    {' '.join(usage)} [OPTIONS]\n"
    parameters = [each for each in command.params if each.name != "help" and not each.hidden]
    if parameters:
        yield "| option | value | meaning |\n|---|---|---|"
        yield from (_row(each) for each in parameters)
        yield ""


def _is_argument(parameter: Any) -> bool:
    return bool(parameter.param_type_name == "argument")


def _argument(parameter: Any) -> str:
    word = parameter.metavar or str(parameter.name).upper()
    return word if parameter.required else f"[{word}]"


def _row(parameter: Any) -> str:
    if _is_argument(parameter):
        names = _argument(parameter)
    else:
        names = ", ".join([*parameter.opts, *parameter.secondary_opts])
    default = ""
    if parameter.default not in (None, False, ..., "", []) and not callable(parameter.default):
        default = f" (default: {parameter.default})"
    kind = _kind(parameter.type_descriptor.annotation)
    return f"| `{names}` | {_cell(kind)} | {_cell((parameter.help or '') + default)} |"


def _kind(annotation: Any) -> str:
    parts = get_args(annotation)
    if get_origin(annotation) is Literal:
        return " · ".join(parts)
    name = str(annotation) if parts else getattr(annotation, "__name__", str(annotation))
    return name.replace("pathlib.", "")


def _cell(text: str) -> str:
    flat = " ".join(text.split())
    for sign, entity in (("&", "&amp;"), ("<", "&lt;"), ("|", "\\|")):
        flat = flat.replace(sign, entity)
    return flat
