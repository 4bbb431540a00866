"""The rules of style that no linter knows. Each failure names the files and what to do.

One test walks all files: a test for each rule and file takes three times the CPU time.
"""

import ast
import gc
import re
from collections import Counter
from collections.abc import Generator, Iterable, Iterator
from functools import cache
from pathlib import Path

import pytest

from penstock.base.log import LOGGABLE, LOGGABLE_ENDINGS
from penstock.postgres.functions import read_functions, read_history
from tests.database import MIGRATION_PACKAGES

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "penstock"
MODULES = sorted(SOURCE.rglob("*.py"))
TESTS = sorted((ROOT / "tests").rglob("*.py"))
OTHER_FOLDERS = [ROOT / name for name in ("bench", "deploy", "examples", "tools")]
# What `make bench` has installed of other queues is not written by us.
PEERS = ROOT / "bench" / ".peers"
OTHERS = sorted(
    path for folder in OTHER_FOLDERS for path in folder.rglob("*.py") if PEERS not in path.parents
)
STATEMENTS = sorted(SOURCE.rglob("sql/*.sql"))
FUNCTIONS = sorted(SOURCE.rglob("functions/*.sql"))
STEPS = sorted(SOURCE.rglob("migrations/*.sql"))

# The migrations from before the squash are kept as they were, and this file lists the phrases.
KEPT = {ROOT / "tests" / "migration" / "before_squash", Path(__file__), PEERS}
PROSE = sorted(
    path
    for path in (
        *(
            path
            for folder in (SOURCE, ROOT / "tests", *OTHER_FOLDERS)
            for ending in ("py", "sql", "lua", "md", "yml")
            for path in folder.rglob(f"*.{ending}")
        ),
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "docs").rglob("*.svg"),
        *ROOT.glob("*.md"),
    )
    if not KEPT & {path, *path.parents}
)

FILES_MIN = 5  # The fewest are migrations.
DOCSTRING_LINES_MAX = 5
DOCSTRING_MAY_BE_LONG = {"errors.py"}  # They draw their tree.
NAMES_BANNED = {"common", "helper", "helpers", "manager", "misc", "util", "utils"}
# Words of a private vocabulary that was replaced by the field's own; no part of a name may be one.
WORDS_BANNED = {
    "apologize", "breath", "buried", "crew", "crowded", "dawdle", "desk", "doomed", "door", "fate",
    "hand_in", "havoc", "insist", "insisting", "intake", "judge", "judged", "judgement", "let_in",
    "let_out", "lonely", "office", "passage", "reckon", "shelf", "short_way", "strand", "tell",
    "volley", "volleys",
}  # fmt: skip
PRODUCT = "post_office"  # A peer of the benchmarks; it has that name.
# Whole names: an SmtpRelay is fine.
CLASSES_BANNED = {"Answer", "Channel", "Envelope", "Inbox", "Pass", "Relay", "Site"}
PHRASES_BANNED = (
    "of ours", "of theirs", "reckon", "who finds", "let go", "lets go", "stands there",
    "in good faith", "in good order", "in its hands", "we stand on", "had his", "for whoever",
    "insists", "puzzles", "whoever asked", "whoever hears", "calls itself", "at the door",
    "anybody can wait", "knows better than",
)  # fmt: skip
MAY_CREATE_TASKS = {"base/aio.py"}
MAY_CATCH_EVERYTHING = {
    "base/aio.py",
    "base/errors.py",  # It asks values of users for their text.
    "base/threads.py",
    "domains/payments/execute.py",  # It runs steps of users, as the kernel does handlers.
    "integrations/kafka/dead_topic.py",
    "kernel/execute.py",
    "kernel/preload.py",  # It runs functions of domains.
    "kernel/settle.py",  # It encodes results of users.
}
MAY_READ_THE_ENVIRONMENT = {"base/settings.py"}


def name_of(path: Path) -> str:
    return path.relative_to(SOURCE if SOURCE in path.parents else ROOT).as_posix()


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8")


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(text_of(path), filename=str(path))


@cache
def nodes_of(path: Path) -> list[ast.AST]:
    return list(ast.walk(tree_of(path)))


@pytest.fixture(scope="module", autouse=True)
def _no_search_for_garbage() -> Generator[None]:
    """Parse without garbage collection, which would take four fifths of the CPU time.

    The trees are dropped afterwards: each collection would go through them in all later tests.
    """
    gc.disable()
    yield
    nodes_of.cache_clear()
    tree_of.cache_clear()
    text_of.cache_clear()
    gc.enable()


def test_the_files_are_found() -> None:
    """A rule over no files would hold."""
    for files in (MODULES, TESTS, OTHERS, STATEMENTS, FUNCTIONS, STEPS, PROSE):
        assert len(files) >= FILES_MIN


def test_a_module_opens_with_one_to_five_lines() -> None:
    """They say what it owns; more than that belongs into docs/."""
    docstrings = {path: ast.get_docstring(tree_of(path)) or "" for path in MODULES}
    without = [path for path, docstring in docstrings.items() if not docstring]
    long = [
        path
        for path, docstring in docstrings.items()
        if len(docstring.splitlines()) > DOCSTRING_LINES_MAX
        and path.name not in DOCSTRING_MAY_BE_LONG
    ]

    assert names_of(without) == [], "say in one line what these modules own"
    assert names_of(long) == []


def test_a_module_is_named_after_something() -> None:
    badly = [
        path
        for path in MODULES
        if NAMES_BANNED & {part.removesuffix(".py") for part in path.relative_to(SOURCE).parts}
    ]

    assert names_of(badly) == []


def test_a_name_is_the_fields_own_word() -> None:
    """An engineer of this field must find the code by the word that the field uses."""
    wrong: dict[str, set[str]] = {}
    for path in (*MODULES, *TESTS, *OTHERS):
        is_module = SOURCE in path.parents
        names = {path.stem, *defined_names(path, with_variables=is_module)}
        found = {name for name in names if banned_words(name)}
        if is_module:
            found |= names & CLASSES_BANNED
        if found:
            wrong[name_of(path)] = found

    assert wrong == {}


@pytest.mark.parametrize(
    ("name", "banned"),
    [
        ("Desk", {"desk"}),
        ("_tell_all", {"tell"}),
        ("SHELF_MAX", {"shelf"}),
        ("HTTPDoor", {"door"}),
        ("_ShortWay", {"short_way"}),
        ("intelligent", set[str]()),
        ("indoors", set[str]()),
        ("way_short", set[str]()),
    ],
)
def test_a_banned_word_is_found_as_a_whole_part_of_a_name(name: str, banned: set[str]) -> None:
    """The rule above must neither miss a spelling nor raise a false alarm."""
    assert banned_words(name) == banned


def test_prose_is_plain_english() -> None:
    """A reader whose second language is English must understand each sentence at once."""
    wrong: dict[str, list[str]] = {}
    for path in PROSE:
        text = " ".join(text_of(path).lower().split())
        # Most texts have none of them; only the others are searched for whole words.
        found = [each for each in PHRASES_BANNED if each in text and re.search(rf"\b{each}", text)]
        if found:
            wrong[name_of(path)] = found

    assert wrong == {}


def test_tasks_are_created_in_one_place() -> None:
    """A task without an owner is lost when it fails."""
    creators = {"create_task", "ensure_future", "run_coroutine_threadsafe"}

    creating = {name_of(path) for path in MODULES if creators & set(calls(path))}

    assert creating <= MAY_CREATE_TASKS


def test_everything_is_caught_in_supervisors_only() -> None:
    """Elsewhere it hides a bug. Catching to raise again is fine."""
    catching = [
        f"{name_of(path)} line {node.lineno}: name what you expect"
        for path in MODULES
        if name_of(path) not in MAY_CATCH_EVERYTHING
        for node in nodes_of(path)
        if isinstance(node, ast.ExceptHandler) and catches_everything(node) and not reraises(node)
    ]

    assert catching == []


def test_the_keys_of_log_lines_are_readable() -> None:
    """A key that nobody has allowed is printed as redacted, and says nothing."""
    keys = {
        f"{name_of(path)}: {keyword.arg}"
        for path in MODULES
        for node in nodes_of(path)
        if isinstance(node, ast.Call) and _logs(node)
        for keyword in node.keywords
        if keyword.arg is not None
        and keyword.arg not in LOGGABLE
        and not keyword.arg.endswith(LOGGABLE_ENDINGS)
    }

    assert keys == set()


def _logs(call: ast.Call) -> bool:
    levels = {"debug", "info", "warning", "error", "bind"}
    return isinstance(call.func, ast.Attribute) and call.func.attr in levels


def test_the_environment_is_read_in_one_place() -> None:
    """Settings read in passing are neither checked at start nor documented."""
    reading = {
        name_of(path)
        for path in MODULES
        if re.search(r"\bos\.(environ|getenv)\b", ast.unparse(tree_of(path)))
    }

    assert reading <= MAY_READ_THE_ENVIRONMENT


def test_public_names_are_sorted() -> None:
    public = {
        name_of(path): ast.literal_eval(node.value)
        for path in MODULES
        for node in tree_of(path).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__"
    }

    assert public == {path: sorted(names) for path, names in public.items()}


def test_a_sql_file_opens_with_its_reason() -> None:
    files = (*STATEMENTS, *FUNCTIONS, *STEPS)

    assert names_of(path for path in files if not text_of(path).startswith("-- ")) == []


def test_a_function_has_one_body_in_the_whole_tree() -> None:
    """Of two, one is dead, and a reader may find that one."""
    bodies = Counter(name for path in (*STEPS, *FUNCTIONS) for _, name in definitions(path))

    assert [name for name, count in bodies.items() if count > 1] == []
    assert len(bodies) == len(FUNCTIONS) >= 60


def test_a_function_file_defines_the_object_of_its_name_and_no_other() -> None:
    wrong = [path for path in FUNCTIONS if [name for _, name in definitions(path)] != [path.stem]]

    assert names_of(wrong) == []


def test_a_migration_defines_no_function_view_or_trigger() -> None:
    """They have a file of their own, which is the only place to change them."""
    assert names_of(path for path in STEPS if definitions(path)) == []


def test_a_migration_calls_no_function_of_its_own_package() -> None:
    """Functions are applied after it, and by then may have become other ones."""
    wrong: dict[str, set[str]] = {}
    for path in STEPS:
        own = {function.stem for function in (path.parent.parent / "functions").glob("*.sql")}
        called = set(re.findall(r"\bpenstock\.(\w+)\(", code_of(path)))
        if called & own:
            wrong[name_of(path)] = called & own

    assert wrong == {}


@pytest.mark.parametrize("package", MIGRATION_PACKAGES)
def test_the_texts_of_all_functions_are_recorded(package: str) -> None:
    """By the history a release knows whether the text in a database is older or newer."""
    recorded = {name: texts[-1] for name, texts in read_history(package).items()}
    shipped = {each.name: each.checksum for each in read_functions(package)}

    command = f"run: python -m penstock.postgres.history {package}"
    assert recorded.items() >= shipped.items(), command


def test_a_statement_is_used_by_exactly_one_module() -> None:
    """Two users would pull one statement in two directions; none means it is dead."""
    users = {
        name_of(path): [
            name_of(module)
            for module in path.parent.parent.glob("*.py")
            if f'"{path.name}"' in text_of(module)
        ]
        for path in STATEMENTS
    }

    assert {path: modules for path, modules in users.items() if len(modules) != 1} == {}


def test_a_test_waits_on_a_signal_and_never_sleeps() -> None:
    """A sleep is too short on a busy machine and too long on every other."""
    assert names_of(path for path in TESTS if "sleep" in set(calls(path))) == []


def test_a_test_replaces_no_code_of_penstock() -> None:
    """A patched module proves that the patch works."""
    patching = [
        path for path in TESTS if any("mock" in name.split(".") for name in imported_names(path))
    ]

    assert names_of(patching) == []


def names_of(paths: Iterable[Path]) -> list[str]:
    return [name_of(path) for path in paths]


def imported_names(path: Path) -> set[str]:
    """Return the modules that a file imports, and the names that it imports from them."""
    return {
        name
        for node in nodes_of(path)
        if isinstance(node, ast.Import | ast.ImportFrom)
        for name in [getattr(node, "module", None) or "", *(alias.name for alias in node.names)]
    }


def code_of(path: Path) -> str:
    """Return a SQL file without its comments."""
    return re.sub(r"--[^\n]*", "", text_of(path))


def definitions(path: Path) -> list[tuple[str, str]]:
    """Return the kind and name of each function, view and trigger that a SQL file creates."""
    pattern = r"\bCREATE\s+(?:OR\s+REPLACE\s+)?(FUNCTION|PROCEDURE|VIEW|TRIGGER)\s+(?:\w+\.)?(\w+)"
    return re.findall(pattern, code_of(path), re.IGNORECASE)


def defined_names(path: Path, *, with_variables: bool) -> Iterator[str]:
    """Yield the classes and functions that a file defines, and perhaps what it assigns."""
    for node in nodes_of(path):
        match node:
            case ast.ClassDef() | ast.FunctionDef() | ast.AsyncFunctionDef():
                yield node.name
            case ast.arg() if with_variables:
                yield node.arg
            case ast.Name(ctx=ast.Store()) if with_variables:
                yield node.id
            case ast.Attribute(ctx=ast.Store()) if with_variables:
                yield node.attr
            case _:
                pass


def banned_words(name: str) -> set[str]:
    """Return the banned words among the parts of a name, in snake_case or CamelCase."""
    parts = re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)
    spelt = f"_{'_'.join(parts).lower()}_".replace(PRODUCT, "")
    return {word for word in WORDS_BANNED if f"_{word}_" in spelt}


def calls(path: Path) -> Iterator[str]:
    """Yield the last name of everything that a file calls."""
    for node in nodes_of(path):
        if isinstance(node, ast.Call):
            yield ast.unparse(node.func).rsplit(".", 1)[-1]


def catches_everything(handler: ast.ExceptHandler) -> bool:
    return handler.type is None or ast.unparse(handler.type) in {"Exception", "BaseException"}


def reraises(handler: ast.ExceptHandler) -> bool:
    return any(isinstance(node, ast.Raise) for node in ast.walk(handler))
