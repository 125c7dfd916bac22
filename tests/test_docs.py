"""README and docs: what they show is there and runs."""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import docstrings
import pytest


ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
PAPERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").glob("*.md"))]


@pytest.mark.parametrize("paper", PAPERS, ids=lambda path: path.name)
def test_links_and_pictures_are_there_and_nothing_is_left_to_fill_in(paper):
    text = paper.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", text):
        assert (paper.parent / target).exists(), target
    assert not re.findall(r"^\s*[A-Z]+_[A-Z]+\s*$", text, flags=re.MULTILINE)


STILTED = (
    r"\b(so many|anew|from new|likewise|nobody|nowhere|what is due|go(es)? on with|what was seen|by the parameters)\b"
)
BRITISH = r"\b(colour|behaviour|licence|favour|centre|learnt)|[a-z]{2}(al|ar|it|im|or)is(e|es|ed|ing|ation)\b"
PLAIN = [
    "README.md",
    "CONTRIBUTING.md",
    "docs/faq.md",
    "docs/frameworks.md",
    *map(str, sorted(ROOT.glob("examples/with_*.py"))),
]


@pytest.mark.parametrize("page", PLAIN, ids=lambda page: Path(page).name)
def test_the_pages_that_people_read_first_are_in_plain_american_english(page):
    text = (ROOT / page).read_text()
    assert [found.group() for found in re.finditer(f"{STILTED}|{BRITISH}", text, flags=re.IGNORECASE)] == []


@pytest.mark.parametrize("paper", sorted((ROOT / "docs").glob("*.md")), ids=lambda path: path.name)
def test_examples_in_docs_run(paper):
    for block in docstrings.examples(paper.read_text()):
        docstrings.run(block, paper)


def test_the_readmes_quickstart_runs_as_pasted():
    program = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)[0]
    result = subprocess.run([sys.executable, "-W", "error", "-"], input=program, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr
    ranks = [float(rank) for rank in re.findall(r"effective rank ([\d.]+)", result.stdout)]
    start, end = re.search(r"rises from (\d+) to (\d+);", README).groups()
    assert [round(ranks[0]), round(ranks[-1])] == [pytest.approx(int(start), abs=1), pytest.approx(int(end), abs=1)]


def test_the_readme_says_which_jax_is_needed():
    (jax_requirement,) = [line for line in PROJECT["dependencies"] if line.startswith("jax>")]
    low, high = re.fullmatch(r"jax>=([\d.]+),<([\d.]+)", jax_requirement).groups()
    assert f"jax {low} or newer, below {high}" in README


def test_the_readme_and_the_citation_file_name_the_same_paper():
    citation = (ROOT / "CITATION.cff").read_text().split("preferred-citation:")[1]
    bibtex = re.search(r"```bibtex\n(.*?)```", README, flags=re.DOTALL).group(1)
    authors = re.findall(r"given-names: ([^,]+), family-names: ([^}]+)}", citation)
    listed = " ".join(re.search(r"author\s*= {(.*?)}", bibtex, flags=re.DOTALL).group(1).split())
    assert listed == " and ".join(f"{family}, {given}" for given, family in authors)
    assert f"\nversion: {PROJECT['version']}\n" in (ROOT / "CITATION.cff").read_text()
    for field in ("title", "year", "url"):
        value = re.search(rf"{field}\s*= {{(.*?)}}", bibtex).group(1)
        assert f"{field}: {value}" in citation
