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
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAPERS = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *DOCS]


def name_of(path):
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("paper", PAPERS, ids=name_of)
def test_links_and_pictures_are_there_and_nothing_is_left_to_fill_in(paper):
    text = paper.read_text()
    for target in re.findall(r"\]\((?!http)([^)#]+)(?:#[^)]*)?\)", text):
        assert (paper.parent / target).exists(), target
    assert not re.findall(r"^\s*[A-Z]+_[A-Z]+\s*$", text, flags=re.MULTILINE)


def broken_tables(text):
    """The numbers of lines between two rows of a table that are not rows themselves."""
    without_code = re.sub(r"(?ms)^```.*?^```", lambda code: "\n" * code.group().count("\n"), text)
    rows = ["", *without_code.splitlines(), ""]
    return [
        number
        for number, (before, line, after) in enumerate(zip(rows, rows[1:], rows[2:], strict=False), start=1)
        if line and not line.startswith("|") and before.startswith("|") and after.startswith("|")
    ]


@pytest.mark.parametrize("paper", [*PAPERS, ROOT / "CHANGELOG.md"], ids=name_of)
def test_tables_are_in_one_piece(paper):
    assert broken_tables(paper.read_text()) == []


def test_the_check_of_tables_finds_lines_between_rows():
    assert broken_tables("| a |\n|---|\nTO FILL IN\n| b |\n") == [3]
    assert broken_tables("| a |\n|---|\n| b |\nText.\n\n```\n| c |\nd\n| e |\n```\n") == []


STILTED = (
    r"\b(?:so many|anew|from new|likewise|nobody|nowhere|what is due|go(?:es)? on with|what was seen|by the parameters|"
    r"by heart|in play|of no account|other than in|dear)\b"
)
BRITISH = (
    r"\b\w*(?:colour|behaviour|favour|neighbour|licence|centre|learnt|labelled|judgement|grey)\w*|"
    r"\b\w{2,}(?:al|an|ar|er|gn|im|it|or|rd)is(?:e|es|ed|ing|ation)\b"
)
PLAIN = [
    ROOT / "CHANGELOG.md",
    *PAPERS,
    *(path for folder in ("docs", "examples", "packages", "kernels") for path in sorted((ROOT / folder).rglob("*.py"))),
]
GIVEN = {  # Names of lineax, and a name that earlier versions have stored.
    "packages/benchmarks/plastax_benchmarks/config/stored.py": {"standardise"},
    "packages/diagnostics/plastax_diagnostics/_operators/base.py": {"linearise", "materialise"},
}


def stilted_or_british(text):
    return set(re.findall(f"{STILTED}|{BRITISH}", text.lower()))


def test_everything_that_people_read_is_in_plain_american_english():
    words = {str(path.relative_to(ROOT)): stilted_or_british(path.read_text()) for path in PLAIN}
    assert {
        page: found - GIVEN.get(page, set()) for page, found in words.items() if found - GIVEN.get(page, set())
    } == {}
    assert {page: words[page] for page in GIVEN} == GIVEN


def test_the_check_of_words_finds_them_and_leaves_others_alone():
    wrong = "So many colours were recognised in play, normalised anew"
    assert stilted_or_british(wrong) == {"so many", "colours", "recognised", "in play", "normalised", "anew"}
    assert stilted_or_british("raise, noise, precise, otherwise, compromise, arises, color, go on") == set()


SHARED_RATE = ("permuted-mnist", "continual-text")
"""Problems whose methods share the learning rate of the preset: tables of sweeps show it, too."""


def sweep_tables():
    """For each sweep of the page on sweeps: problem, command, and the values and the best of each setting."""
    page = (ROOT / "docs" / "sweeps.md").read_text()
    for title, text in re.findall(r"^## ([^\n]+)\n(.*?)(?=^## |\Z)", page, flags=re.MULTILINE | re.DOTALL):
        command = re.search(r"plastax sweep ([\w-]+) .*", text)
        table = re.search(r"^\| Algorithm .*?\n\n", text + "\n\n", flags=re.MULTILINE | re.DOTALL).group()
        found, method = {}, ""
        for row in table.strip().splitlines()[2:]:
            name, setting, values, best, *_ = (cell.strip() for cell in row.strip("|").split("|"))
            method = name or method
            found[method, setting.replace(" ", "_")] = (sorted(map(float, values.split(", "))), float(best))
        yield title, command.group(1), command.group(), found


def test_the_sweeps_are_those_of_the_grids_and_the_presets_have_their_best_values():
    from plastax_benchmarks.config import configure
    from plastax_benchmarks.config.laptop_grids import laptop_grid, strength_grid
    from plastax_benchmarks.config.laptop_tuned import TUNED

    compared = {problem: set() for problem in TUNED}
    for title, problem, command, found in sweep_tables():
        grid_of = strength_grid if "--grid strengths" in command else laptop_grid
        for (method, name), (values, best) in found.items():
            preset = configure(problem, "laptop", method).settings
            tried = {each.get(name, preset[name]) for each in grid_of(problem, method)}
            assert values == sorted(tried), (title, method, name)
            if "not in the presets" not in title:
                assert preset[name] == best, (title, method, name)
                compared[problem].add((method, name))
    assert compared == {
        problem: {(method, name) for method, values in own.items() for name in values}
        | ({(method, "learning_rate") for method in (*own, "bp", "reset")} if problem in SHARED_RATE else set())
        for problem, own in TUNED.items()
    }


@pytest.mark.parametrize("paper", DOCS, ids=name_of)
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


def test_the_readmes_quickstart_and_its_table_are_those_of_the_pages():
    program = re.findall(r"```python\n(.*?)```", README, flags=re.DOTALL)[0]
    assert (ROOT / "examples" / "quickstart.py").read_text().endswith(f'"""\n\n{program}')
    (table,) = re.findall(r"^\| method \| online accuracy.*?\n\n", README, flags=re.DOTALL | re.MULTILINE)
    assert table in (ROOT / "docs" / "get_started.md").read_text()


def test_the_readmes_quickstart_is_the_code_behind_a_row_of_its_table():
    from plastax_benchmarks.config import configure

    values = configure("permuted-mnist", "laptop", "l2_er_gradient").settings
    call, rate = re.search(
        r"plastax.l2_er\(features, (.*?)\),\n\s+optax.sgd\((.*?)\)", README, flags=re.DOTALL
    ).groups()
    given = {name: eval(value) for name, value in re.findall(r"(\w+)=([\de./ -]+)", call)}
    names = {
        "weight_decay": "weight_decay",
        "er_weight": "er_weight",
        "interval": "er_interval",
        "window": "er_interval",
    }
    assert given == {name: pytest.approx(values[ours]) for name, ours in names.items()}
    assert float(rate) == values["learning_rate"]
    assert (values["batch_size"], values["er_window"], values["momentum"]) == (1, None, 0)
    assert "ShapeDtypeStruct((1, 8)" in README


def test_the_new_method_in_contributing_trains(tmp_path, monkeypatch):
    from rich.console import Console

    from plastax_benchmarks import methods
    from plastax_benchmarks.config import configure, run as config_run
    from plastax_benchmarks.training.loop import run

    (block,) = docstrings.examples((ROOT / "CONTRIBUTING.md").read_text())
    made = docstrings.run(block, "CONTRIBUTING.md")["L1"]
    monkeypatch.setitem(methods.METHODS, "l1", made)
    monkeypatch.setitem(config_run.KINDS["method"], "l1", made)
    sizes = {"num_tasks": 1, "train_size": 50, "seeds": 1, "width": 3}
    config = configure("slowly-changing-regression", "laptop", "l1", **sizes, out=tmp_path / "run")
    folder = run(config, sweep={"l1_strength": (0.0, 1.0)}, console=Console(quiet=True))
    lines = [line for line in (folder / "metrics.jsonl").read_text().splitlines() if line]
    norms = [float(re.search(r'"weight_norm": ([\d.]+)', line).group(1)) for line in lines]
    assert norms[1] < norms[0]


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
