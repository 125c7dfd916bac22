"""Text that is already on this machine: what comes with Python, or a folder of the user."""

import ast
import hashlib
import importlib.metadata
import sys
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from ._images import DataError


class Section(NamedTuple):
    """A part of a text that belongs together: a module, the licenses of a package, a file."""

    name: str
    content: bytes


class Text(NamedTuple):
    """A text in sections, and where it is from."""

    source: str
    sections: tuple[Section, ...]

    @property
    def size(self) -> int:
        """The number of bytes."""
        return sum(len(section.content) for section in self.sections)


SKIPPED = {"test", "tests", "idle_test", "encodings", "site-packages", "dist-packages", "lib2to3", "__pycache__"}
"""Folders of the standard library that are not installed everywhere, or hold tables rather than text."""


def load_text(kind: str = "code", folder: str | Path | None = None, most: int = 2_000_000) -> Text:
    """The first bytes of a text, in a fixed order of its files.

    On one machine the result is always the same. Another version of Python has a different standard library.

    ```python
    from plastax_benchmarks.data import load_text

    text = load_text("docstrings", most=10_000)
    text.size  # 10000
    text.sections[0].name  # "abc"
    ```

    **Arguments:**

    - `kind`: `"code"` (the sources of the standard library), `"docstrings"` (its documentation strings) or `"licenses"`
        (license texts of the installed packages, without repetitions).
    - `folder`: a folder of text files to read instead, each of which is a section. Files with a zero byte are skipped.
    - `most`: the number of bytes after which to stop.
    """
    if folder is not None:
        place = Path(folder).expanduser()
        if not place.is_dir():
            raise FileNotFoundError(f"--text-dir {place} is not a folder")
        source, sections = str(place), _files(place)
    else:
        source, read = _KINDS[kind]
        source, sections = source(), read()
    found = _first_bytes(sections, most)
    if not found:
        raise DataError(
            f"there is no text in {source}: give a folder of text files with --text-dir"
            + ("" if folder is not None else f", or choose another --text ({', '.join(_KINDS)})")
        )
    return Text(source, tuple(found))


def describe_text() -> str:
    """A line for each text that comes with Python."""
    lines = []
    for kind in _KINDS:
        try:
            text = load_text(kind, most=1)  # All docstrings take seconds to read.
        except (DataError, OSError) as error:
            lines.append(f"{kind:12}{'missing':9}{error}")
            continue
        lines.append(f"{kind:12}{'ready':9}{text.source}")
    return "\n".join(lines)


def _first_bytes(sections: Iterator[Section], most: int) -> list[Section]:
    """Sections up to a number of bytes. Those that are empty or repeat an earlier one are left out."""
    found, left, known = [], most, set()
    for name, content in sections:
        digest = hashlib.sha256(content).digest()
        if not content.strip() or digest in known:
            continue
        known.add(digest)
        found.append(Section(name, content[:left]))
        left -= len(found[-1].content)
        if left <= 0:
            break
    return found


def _library() -> Path:
    return Path(sysconfig.get_path("stdlib"))


def _source_of_library() -> str:
    return f"the standard library of Python {sys.version_info.major}.{sys.version_info.minor} ({_library()})"


def _modules() -> Iterator[tuple[str, list[Path]]]:
    """The source files of each module or package at the top of the standard library, in alphabetical order."""
    library = _library()
    for top in sorted(library.iterdir(), key=lambda path: path.name) if library.is_dir() else ():
        if top.is_file() and top.suffix == ".py" and not top.name.startswith("_sysconfigdata"):
            yield top.stem, [top]
        elif top.is_dir() and (top / "__init__.py").is_file() and top.name not in SKIPPED:
            files = (path for path in top.rglob("*.py") if not SKIPPED & set(path.relative_to(library).parts))
            yield top.name, sorted(files, key=lambda path: path.relative_to(library).as_posix())


def _code() -> Iterator[Section]:
    for name, paths in _modules():
        yield Section(name, b"\n".join(path.read_bytes() for path in paths))


def _docstrings() -> Iterator[Section]:
    for name, paths in _modules():
        yield Section(name, "\n\n".join(text for path in paths for text in _docstrings_of(path)).encode())


def _docstrings_of(path: Path) -> Iterator[str]:
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):  # A file for tests of errors, or one that somebody has changed.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            text = ast.get_docstring(node)
            if text:
                yield text


def _licenses() -> Iterator[Section]:
    packages = {dist.metadata["Name"] or "": dist for dist in importlib.metadata.distributions()}
    for name in sorted(packages, key=str.lower):
        for file in sorted(packages[name].files or (), key=str):
            words = file.name.lower()
            if any(word in words for word in ("licen", "copying", "notice")) and not words.endswith(".py"):
                path = Path(str(file.locate()))
                if path.is_file():
                    yield Section(f"{name}/{file.name}", path.read_bytes())


def _files(folder: Path) -> Iterator[Section]:
    paths = {path.relative_to(folder).as_posix(): path for path in folder.rglob("*") if path.is_file()}
    for name in sorted(paths):
        content = paths[name].read_bytes()
        if b"\0" not in content:
            yield Section(name, content)


_KINDS = {
    "code": (_source_of_library, _code),
    "docstrings": (lambda: f"the documentation strings of {_source_of_library()}", _docstrings),
    "licenses": (lambda: "the licenses of the installed packages", _licenses),
}
