"""The documentation site: it builds without warnings, works offline, and has every public name and example."""

import inspect
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

import plastax
import plastax.models
import plastax_diagnostics
import plastax_kernels


ROOT = Path(__file__).parent.parent
PACKAGES = (plastax, plastax.models, plastax_diagnostics, plastax_kernels)


class Page(HTMLParser):
    """What a page of the site defines and loads."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.links, self.loaded = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        values = {name: value for name, value in attrs if value is not None}
        self.anchors |= {values[name] for name in ("id", "name") if name in values}
        if tag == "a" and "href" in values:
            self.links.add(values["href"])
        elif tag != "a":
            self.loaded |= {values[name] for name in ("src", "href") if name in values}


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """Page objects of the built site, by their path."""
    folder = tmp_path_factory.mktemp("site")
    command = [str(Path(sys.executable).with_name("mkdocs")), "build", "--strict", "--site-dir", str(folder)]
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1"}  # Material's announcement of its successor.
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    noise = [line for line in result.stderr.splitlines() if not line.startswith("INFO")]
    assert noise == [], "\n".join(noise)
    return {path.relative_to(folder).as_posix(): path for path in folder.rglob("*.html")}


def test_links_and_anchors_resolve_and_nothing_is_loaded_from_the_web(site):
    pages = {name: Page(path.read_text()) for name, path in site.items()}
    folder = site["index.html"].parent
    for name, page in pages.items():
        if name == "404.html":  # Its links start at the address of the site.
            continue
        for target in page.links | page.loaded:
            if re.match(r"https?:|mailto:", target):
                assert target in page.links, f"{name} loads {target}"
                continue
            path, _, anchor = target.partition("#")
            file = (folder / name).parent.joinpath(path).resolve() if path else folder / name
            assert file.is_file(), f"{name}: {target}"
            if anchor and file.suffix == ".html":
                known = pages[file.relative_to(folder).as_posix()].anchors
                assert anchor in known, f"{name}: {target}"


def test_every_public_name_is_in_the_api_pages(site):
    documented = {
        anchor for name, path in site.items() if name.startswith("api/") for anchor in Page(path.read_text()).anchors
    }
    for package in PACKAGES:
        names = {
            name
            for name, value in vars(package).items()
            if not name.startswith("_") and not inspect.ismodule(value) and name != "annotations"
        }
        assert names, package
        assert {f"{package.__name__}.{name}" for name in names} - documented == set()


def test_formulas_are_mathml(site):
    text = site["theory.html"].read_text()
    assert text.count("<math") > 30
    for name, path in site.items():
        text = path.read_text()
        assert "arithmatex" not in text, name
        # A command that the converter does not know is left as an identifier.
        assert not re.findall(r"<mi>\\[a-z]+", text), name


def test_names_in_pages_link_to_the_api(site):
    assert "api/l2_er.html#plastax.l2_er" in Page(site["transformations.html"].read_text()).links
    assert "api/operators.html#plastax_diagnostics.ntk" in Page(site["theory.html"].read_text()).links


COPY = re.compile(r'<!-- (examples/\w+\.py) -->\n```python hl_lines="([\d ]+)"\n(.*?)^```', re.DOTALL | re.MULTILINE)
COPIES = [
    pytest.param(*found, id=f"{page.stem}-{Path(found[0]).stem}")
    for page in sorted((ROOT / "docs").glob("*.md"))
    for found in COPY.findall(page.read_text())
]


@pytest.mark.parametrize(("example", "marked", "text"), COPIES)
def test_programs_in_pages_are_copies_of_examples(example, marked, text):
    assert text == (ROOT / example).read_text(), f"copy {example} into the page again"
    lines = text.splitlines()
    marked = [lines[int(number) - 1] for number in marked.split()]
    assert any("plastax." in line for line in marked)
    assert any(re.search(r"update\(|apply_gradients\(|inputs=", line) for line in marked)


def test_every_program_is_in_a_page_or_linked_from_one():
    pages = "".join(page.read_text() for page in (ROOT / "docs").glob("*.md"))
    programs = {path.name for path in (ROOT / "examples").glob("*.py")}
    assert programs - set(re.findall(r"examples/(\w+\.py)\b", pages)) == set()
