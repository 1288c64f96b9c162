"""A member's machine need not be POSIX: what only POSIX has is named behind a question for it."""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.helpers.own_tree import own_tree
from tests.helpers.without_posix import ARGUMENTS, MODULES, NAMES
from tools.tree import Module, Tree

COMMANDS = (
    "tacit_services.start",
    "tacit_services.launch",
    "tacit_services.cli.join",
    "tacit_services.cli.ledger",
    "tacit_services.cli.doctor",
    "tacit_services.cli.health",
    "tacit_services.member.run_worker",
)
# What is POSIX by nature, and who asks for it: each is importable, and asked before it is used.
ENGINES = {
    "tacit_services.children.preload": "the forkserver: FORKS",
    "tacit_services.worker.cpu_turns": "named pipes: an edge refuses a path that is none",
}
# Federations' hosts, which need Unix sockets: `serve` says so.
HOSTS = ("tacit_services.federation.", "tacit_services.doctor.host_")


@pytest.fixture(scope="module")
def tree() -> Tree:
    return own_tree()


def reached(tree: Tree) -> set[str]:
    """Return all modules that the commands import, now or later, with the packages of each."""
    modules = set[str]()
    todo = list(COMMANDS)
    while todo:
        name = todo.pop()
        if name not in modules:
            modules.add(name)
            todo += tree.imports[name]
            todo += [package] if (package := name.rpartition(".")[0]) else []
    return modules


def asks(condition: ast.expr) -> bool:
    """Return whether a condition asks what system this is, or what it has."""
    text = ast.unparse(condition)
    return any(word in text for word in ("os.name", "sys.platform", "hasattr(", "FORKS"))


def unasked(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what of POSIX is named without a question.

    A question is an `if`, an `assert` or an early return before, or the import's own failure.
    """
    if isinstance(node, ast.Try) and any(_catches_import(each) for each in node.handlers):
        return
    if isinstance(node, ast.If | ast.IfExp | ast.BoolOp) and asks(
        node.values[0] if isinstance(node, ast.BoolOp) else node.test
    ):
        return
    if _is_of_posix(node):
        yield node
    for body in _bodies(node):
        for child in body:
            if _leaves(child):
                break  # what follows is only for systems that were asked for
            yield from unasked(child)


def _bodies(node: ast.AST) -> Iterator[list[ast.AST]]:
    for _, value in ast.iter_fields(node):
        if isinstance(value, list):
            yield [child for child in value if isinstance(child, ast.AST)]
        elif isinstance(value, ast.AST):
            yield [value]


def _leaves(node: ast.AST) -> bool:
    if isinstance(node, ast.Assert):
        return asks(node.test)
    return (
        isinstance(node, ast.If)
        and asks(node.test)
        and isinstance(node.body[-1], ast.Return | ast.Raise)
    )


def _catches_import(handler: ast.ExceptHandler) -> bool:
    return isinstance(handler.type, ast.Name) and handler.type.id == "ImportError"


def _is_of_posix(node: ast.AST) -> bool:
    if isinstance(node, ast.Import):
        return any(alias.name in MODULES for alias in node.names)
    if isinstance(node, ast.ImportFrom):
        hidden = NAMES.get(node.module or "", frozenset())
        return node.module in MODULES or any(alias.name in hidden for alias in node.names)
    if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
        return node.attr in NAMES.get(node.value.id, frozenset())
    return isinstance(node, ast.keyword) and node.arg in ARGUMENTS


def lines_of(module: Module, nodes: Iterator[ast.AST]) -> list[str]:
    return [f"{module.path.name}:{node.lineno}: {ast.unparse(node)}" for node in nodes]  # type: ignore[attr-defined]


def test_what_a_member_runs_names_nothing_that_only_posix_has_without_asking(tree: Tree) -> None:
    modules = reached(tree) - set(ENGINES)
    modules = {name for name in modules if not name.startswith(HOSTS)}
    assert {"tacit.file_lock", "tacit_services.worker.session"} <= modules
    assert {"tacit_services.disk.files", "tacit_services.transport.mqtt"} <= modules
    assert len(modules) > 300

    unguarded = [
        line
        for name in sorted(modules)
        for line in lines_of(tree.modules[name], unasked(tree.modules[name].tree))
    ]

    assert unguarded == []


def test_every_module_can_be_imported_where_posix_is_not(tree: Tree) -> None:
    unguarded = []
    for module in tree.modules.values():
        outside = ast.Module(
            [_without_functions(child) for child in module.tree.body], type_ignores=[]
        )
        unguarded += lines_of(module, unasked(outside))

    assert unguarded == []


def _without_functions(node: ast.stmt) -> ast.stmt:
    """Return what of a statement runs when its module is imported: no body of a function."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
        return ast.Expr(ast.Tuple([*node.decorator_list, *node.args.defaults]), lineno=node.lineno)
    if isinstance(node, ast.ClassDef):
        body = [_without_functions(child) for child in node.body]
        return ast.ClassDef(node.name, node.bases, node.keywords, body, node.decorator_list)
    return node


def test_every_engine_is_still_one(tree: Tree) -> None:
    for name in ENGINES:
        assert lines_of(tree.modules[name], unasked(tree.modules[name].tree)), name


@pytest.mark.parametrize(
    "code",
    [
        "import fcntl",
        "from os import fork",
        "def f():\n    import pwd",
        "os.kill(1, signal.SIGKILL)",
        "def f():\n    os.geteuid()\n    if os.name == 'posix':\n        pass",
        "subprocess.Popen([], pass_fds=(1,))",
        "if os.name == 'posix':\n    pass\nos.setsid()",
    ],
)
def test_a_name_without_a_question_is_told(code: str) -> None:
    assert list(unasked(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "if os.name == 'posix':\n    os.setsid()",
        "x = hasattr(os, 'geteuid') and os.geteuid() == 0",
        "try:\n    import resource\nexcept ImportError:\n    pass",
        "def f():\n    if os.name != 'posix':\n        return\n    os.setsid()",
        "getattr(os, 'O_NONBLOCK', 0)",
    ],
)
def test_a_name_behind_a_question_is_not_told(code: str) -> None:
    assert not list(unasked(ast.parse(code)))
