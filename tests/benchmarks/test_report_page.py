"""The page of a report and the files beside it, from made-up run folders."""

import base64
import json
import re
import shlex
import xml.etree.ElementTree as ElementTree
from html.parser import HTMLParser

import numpy as np
import pytest
from report_support import EIGHT, epsilon_rank, write_ant, write_run
from scipy import stats

from plastax_benchmarks.cli.report import report
from plastax_benchmarks.config import RunConfig, configure
from plastax_benchmarks.report.contents import collect
from plastax_benchmarks.report.live import follow
from plastax_benchmarks.report.markup import as_html, as_script_data, tag
from plastax_benchmarks.report.provenance import provenance_of, unfinished
from plastax_benchmarks.report.read import read_runs
from plastax_benchmarks.report.table import Section, as_latex, escape_latex
from plastax_benchmarks.report.write import write_report


VOID = {"meta", "img", "input", "br", "link", "hr"}
EVIL = "<script>alert('x')</script>"


class Page(HTMLParser):
    """Checks that elements are balanced, and keeps tags, texts and scripts."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags, self.texts, self.scripts = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        (self.scripts if self.open and self.open[-1] in ("script", "style") else self.texts).append(data)

    @property
    def data(self):
        return json.loads(next(text for text in self.scripts if text.startswith('{"problems"')))

    @property
    def text(self):
        return " ".join(self.texts)


def written(out, *folders, **options):
    write_report(collect(list(folders), **options), out)
    return Page((out / "index.html").read_text())


@pytest.fixture(scope="module")
def methods(tmp_path_factory):
    """Two methods and new networks, with epsilon-ranks, and their page."""
    runs = tmp_path_factory.mktemp("runs")
    noise = np.random.default_rng(0).normal(scale=0.02, size=(3, 5, 8))
    values = {name: (0.7 + noise[n]).tolist() for n, name in enumerate(("bp", "l2", "reset"))}
    for name, own in values.items():
        ranks = [epsilon_rank(task, seed, 10.0 + 3 * seed - task) for task in range(8) for seed in range(5)]
        fields = {"dead_fraction": 0.1, "effective_rank": {"a": 2.0, "b": 4.0}}
        write_run(runs / name, own, method=name, diagnostics=ranks, **fields)
    out = tmp_path_factory.mktemp("out")
    return values, out, written(out, runs)


def test_the_page_loads_nothing(methods):
    _, _, page = methods
    loaded = [value for _, attrs in page.tags for name, value in attrs.items() if name in ("src", "srcset", "data")]
    assert loaded
    assert all(value.startswith("data:image/svg+xml;base64,") for value in loaded)
    assert not [kind for kind, _ in page.tags if kind in ("link", "iframe", "object")]
    links = [attrs["href"] for kind, attrs in page.tags if kind == "a"]
    assert links
    assert all(not link.startswith(("http", "//")) for link in links)
    styles = " ".join(page.scripts)
    assert "@import" not in styles
    assert "url(" not in styles
    assert ("meta", {"name": "viewport", "content": "width=device-width, initial-scale=1"}) in page.tags


def test_curves_are_means_and_students_intervals_of_the_metrics(methods):
    values, _, page = methods
    (problem,) = page.data["problems"]
    assert [line["label"] for line in problem["lines"]] == ["bp", "l2", "reset"]
    panels = {panel["name"]: panel for panel in problem["panels"]}
    for curve in panels["online_accuracy"]["curves"]:
        own = np.array(values[problem["lines"][curve["line"]]["label"]])
        interval = stats.t.interval(0.95, 4, own.mean(0), stats.sem(own, axis=0))
        # Six digits are kept.
        np.testing.assert_allclose(curve["mean"], own.mean(0), rtol=1e-5)
        np.testing.assert_allclose([curve["low"], curve["high"]], interval, rtol=1e-5)
        assert curve["seeds"] == 5
    assert panels["online_accuracy"]["x"] == list(range(1, 9))
    gap = np.array(values["bp"]) - np.array(values["reset"])
    np.testing.assert_allclose(panels["gap"]["curves"][0]["mean"], gap.mean(0), atol=1e-6)
    assert panels["effective_rank_b"]["curves"][0]["mean"] == [4.0] * 8
    assert panels["epsilon_rank"]["curves"][1]["mean"] == [16.0 - task for task in range(8)]


def test_figures_are_well_formed_and_in_the_page_without_scripts(methods):
    _, out, page = methods
    pictures = [attrs for kind, attrs in page.tags if kind == "img"]
    svgs = {path.read_bytes() for path in (out / "figures").glob("*.svg")}
    assert {base64.b64decode(each["src"].split(",")[1]) for each in pictures} == svgs
    for text in svgs:
        assert ElementTree.fromstring(text).tag == "{http://www.w3.org/2000/svg}svg"
    # Each has a PNG, and each link leads to a file.
    assert {path.stem for path in (out / "figures").glob("*.png")} == {
        path.stem for path in (out / "figures").glob("*.svg")
    }
    links = [attrs["href"] for kind, attrs in page.tags if kind == "a" and not attrs["href"].startswith("#")]
    assert all((out / link).is_file() for link in links)
    assert {"digits-laptop-online-accuracy.svg", "digits-laptop-curvature.svg"} <= {
        path.name for path in (out / "figures").iterdir()
    }
    assert "Curvature against results" in page.text


def test_two_reports_of_the_same_runs_are_the_same(tmp_path):
    folder = write_run(tmp_path / "a", EIGHT)
    for name in ("one", "two"):
        written(tmp_path / name, folder)
    for path in (tmp_path / "one").rglob("*.*"):
        assert path.read_bytes() == (tmp_path / "two" / path.relative_to(tmp_path / "one")).read_bytes(), path.name


def test_text_from_files_is_escaped(tmp_path):
    folder = write_run(tmp_path / "runs" / EVIL.replace("/", "_"), EIGHT, method=EVIL, config={"problem": "</title>&"})
    (folder / "environment.json").write_text(json.dumps({"cpu": EVIL}))
    page = written(tmp_path / "out", folder)
    assert sum(kind == "script" for kind, _ in page.tags) == 3
    assert EVIL in page.text
    assert page.data["problems"][0]["lines"][0]["label"] == EVIL
    assert "</title>& (laptop)" in page.text
    text = (tmp_path / "out" / "index.html").read_text()
    assert text.count("</script>") == 3
    assert EVIL.encode() not in b"".join(path.read_bytes() for path in (tmp_path / "out" / "figures").glob("*.svg"))


def test_markup_escapes_and_script_data_cannot_end_its_element():
    found = as_html(tag("p", "a < b", tag("b", '"&"', class_='"'), " c", None, data_x='">'))
    assert '<p data-x="&quot;&gt;">a &lt; b<b class="&quot;">"&amp;"</b> c</p>' in found
    assert "<" not in as_script_data({"a": "</script><!--"})
    assert json.loads(as_script_data({"a": "</script><!--"})) == {"a": "</script><!--"}
    with pytest.raises(ValueError, match="not JSON compliant"):
        as_script_data(float("nan"))


def test_runs_of_the_ant_have_a_page(tmp_path):
    page = written(tmp_path / "out", write_ant(tmp_path / "a"))
    (problem,) = page.data["problems"]
    assert problem["unit"] == "step"
    panels = {panel["name"]: panel for panel in problem["panels"]}
    assert panels["return"]["x"] == [2048 * (n + 1) for n in range(8)]
    assert panels["return"]["curves"][0]["mean"] == [10.0 * n for n in range(8)]


def test_a_single_run_shows_the_new_network(tmp_path):
    page = written(tmp_path / "out", write_run(tmp_path / "a", EIGHT, fresh_online_accuracy=0.75))
    (problem,) = page.data["problems"]
    assert [line["label"] for line in problem["lines"]] == ["bp", "a new network"]
    assert problem["panels"][0]["curves"][1]["mean"] == [0.75] * 8


def test_long_runs_keep_their_ends(tmp_path):
    page = written(tmp_path / "out", write_run(tmp_path / "a", [[0.5 + 1e-4 * task for task in range(1200)]]), smooth=1)
    panel = page.data["problems"][0]["panels"][0]
    assert len(panel["x"]) == 400
    assert (panel["x"][0], panel["x"][-1]) == (1, 1200)
    np.testing.assert_allclose(panel["curves"][0]["mean"], 0.5 + 1e-4 * (np.array(panel["x"]) - 1), rtol=1e-5)


def test_failures_are_in_sight(tmp_path):
    folder = write_run(
        tmp_path / "a", EIGHT, config={"num_tasks": 40}, failed=lambda seed, task: seed == 1 and task > 2
    )
    page = written(tmp_path / "out", folder)
    assert "Incomplete: bp. Diverged and left out: 1 seed" in page.text
    assert "incomplete: 8 of 40 tasks" in page.text
    assert "seed 1 in task 4" in page.text


def test_verdicts_of_reports_stand_next_to_what_then_happened(tmp_path):
    rows = [
        epsilon_rank(task, seed, 1.0)
        | {"verdict": f"impaired: about {task}0 % of a new network" if task >= 4 else "as plastic as new"}
        for task in range(8)
        for seed in (0, 1)
    ]
    rows += [epsilon_rank(0, 0, 1.0, when="end") | {"verdict": "collapsed"}]
    bp = write_run(tmp_path / "bp", EIGHT, diagnostics=rows)
    reset = write_run(tmp_path / "reset", [[0.7] * 8] * 2, method="reset")
    contents = collect([bp, reset])
    (section,) = [each for each in contents.problems[0].tables if "verdicts" in each.title]
    first, last = np.array(EIGHT)[:, :4].mean(), np.array(EIGHT)[:, 4:].mean()
    assert section.rows == (
        ("bp", "as plastic as new", "8", f"{first:.3f}", f"{first - 0.7:+.3f}"),
        ("bp", "impaired", "8", f"{last:.3f}", f"{last - 0.7:+.3f}"),
    )
    cases = contents.numbers["problems"][0]["lines"][0]["stored_verdicts"][1]["cases"]
    assert cases[0] == [0, 4, EIGHT[0][4], pytest.approx(EIGHT[0][4] - 0.7)]


def test_the_command_repeats_the_run(tmp_path):
    config = configure("permuted-mnist", "laptop", "l2", weight_decay=0.3, seeds=4, seed=2)
    folder = write_run(tmp_path / "a b", EIGHT, config=config.as_json())
    words = shlex.split(provenance_of(folder).command)
    assert words[:3] == ["plastax", "run", "permuted-mnist"]
    assert words[words.index("--weight-decay") + 1] == "0.3"
    assert words[words.index("--seeds") + 1] == "4"
    assert words[words.index("--out") + 1] == str(folder)
    # The same settings come back from the flags.
    from plastax_benchmarks.cli.run import parse

    again = parse("permuted-mnist", words[3:])[0]
    assert again.replace(out=None) == RunConfig.from_json(config.as_json()).replace(out=None)
    swept = write_run(tmp_path / "c", EIGHT, config=config.as_json() | {"sweep": {"weight_decay": [0.1, 0.2]}})
    assert provenance_of(swept).command.endswith("--sweep weight-decay=0.1,0.2")
    listed = write_run(tmp_path / "d", EIGHT, config=config.as_json() | {"sweep": [{"weight_decay": 0.1}]})
    assert "--config" in provenance_of(listed).command
    assert provenance_of(write_run(tmp_path / "e", EIGHT)).command == ""


def test_what_is_left_of_a_run_is_said(tmp_path):
    def left(name, accuracy, **config):
        return unfinished(read_runs(write_run(tmp_path / name, accuracy, config=config))[0])

    assert left("a", EIGHT) == ""
    assert left("b", EIGHT, num_tasks=9) == "8 of 9 tasks"
    assert left("c", EIGHT, seeds=3) == "2 of 3 seeds"
    assert left("d", []) == "no task has finished yet"
    assert unfinished(read_runs(write_ant(tmp_path / "e", windows=5))[0]) == "10240 of 16384 steps"


def test_latex_is_escaped_and_has_minus_signs():
    section = Section(
        "50 % of l2_er & {more}", ("method", "x (95 % interval)"), (("a_b", "-0.1 (-0.2 to +0.3)"), ("c", "-"))
    )
    text = as_latex(section)
    assert r"\caption{50 \% of l2\_er \& \{more\}}" in text
    assert r"a\_b & $-$0.1 ($-$0.2 to +0.3) \\" in text
    assert r"c & -- \\" in text
    assert text.count("&") == 4  # One is escaped.
    assert text.count("table*") == 0
    assert escape_latex("\\^~#$<±>|") == (
        r"\textbackslash{}\textasciicircum{}\textasciitilde{}\#\$\textless{}$\pm$\textgreater{}\textbar{}"
    )
    assert escape_latex("continual-imagenet") == "continual-imagenet"


def test_wide_latex_tables_have_several_lines_in_their_head_and_fit_the_text():
    columns = ("method", "interquartile mean (95 % bootstrap interval)", "seeds", "minus bp (95 % interval)")
    rows = (("bp", "0.713 (0.700 to 0.720)", "5", "-"),)
    text = as_latex(Section("t", columns, rows))
    # As wide as the cells below, but not narrower than a word or two.
    assert r"method & \shortstack[r]{interquartile mean \\ (95~\% bootstrap \\ interval)} & seeds &" in text
    assert r"\shortstack[r]{minus bp \\ (95~\% \\ interval)} \\" in text
    assert r"\resizebox{\ifdim\width>\linewidth\linewidth\else\width\fi}{!}{%" in text
    assert text.count("{") == text.count("}")
    wide = as_latex(Section("t", (*columns, "dead", "rank"), ((*rows[0], "1", "2"),)))
    assert wide.startswith("\\begin{table*}\n")
    assert wide.endswith("\\end{table*}\n")


def test_the_tex_file_names_its_packages(methods):
    _, out, _ = methods
    text = (out / "tables.tex").read_text()
    assert text.startswith("% Needs \\usepackage{booktabs} and \\usepackage{graphicx}.\n")


def spectra_of(out):
    """The titles of the panels in the figure of spectra."""
    (path,) = (out / "figures").glob("*-spectra.svg")
    texts = [element.text for element in ElementTree.parse(path).iter("{http://www.w3.org/2000/svg}text")]
    return [text for text in texts if text and text.startswith("start of task")]


def test_spectra_of_chosen_tasks(tmp_path, small_report, capsys):
    run = write_run(tmp_path / "a", EIGHT)
    write_run(tmp_path / "plain", EIGHT, method="l2")
    (run / "reports").mkdir()
    for task in (0, 2, 4, 6, 7):
        (run / "reports" / f"task{task:05}-seed0-start-held_out.json").write_text(small_report.to_json())
    report([tmp_path], tmp_path / "out")
    assert len(spectra_of(tmp_path / "out")) == 4
    for words in (("3,8",), ("3", "8"), ("8,", "3")):
        report([tmp_path], tmp_path / "out", spectra_tasks=words)
        assert spectra_of(tmp_path / "out") == ["start of task 3", "start of task 8"]
    assert 'class="wide"' in (tmp_path / "out" / "index.html").read_text()
    with pytest.raises(SystemExit, match=r"start of task 2, 9: spectra are stored for 1, 3, 5, 7, 8"):
        report([tmp_path], tmp_path / "out", spectra_tasks=("2,3,9",))
    with pytest.raises(SystemExit, match=r"no spectra are stored .*--diagnose-every"):
        report([tmp_path / "plain"], tmp_path / "out", spectra_tasks=("1",))
    for word in ("0", "one", "-3"):
        with pytest.raises(SystemExit, match="--spectra-tasks takes numbers of tasks"):
            report([tmp_path], tmp_path / "out", spectra_tasks=(word,))
    with pytest.raises(SystemExit, match="--spectra-tasks needs --out"):
        report([tmp_path], spectra_tasks=("1",))
    # A report that follows runs waits for those that are not stored yet.
    report([tmp_path], tmp_path / "live", live=True, spectra_tasks=("3,6",))
    assert spectra_of(tmp_path / "live") == ["start of task 3"]
    capsys.readouterr()


def test_live_ends_when_all_runs_are_complete(tmp_path, monkeypatch, capsys):
    folder = write_run(tmp_path / "a", [each[:5] for each in EIGHT], config={"num_tasks": 8})
    whole = write_run(tmp_path / "whole", EIGHT)
    said, pages = [], []

    def finish(seconds):
        """The run goes on while the report waits."""
        pages.append((tmp_path / "out" / "index.html").read_text())
        if len(pages) == 2:
            (folder / "metrics.jsonl").write_text((whole / "metrics.jsonl").read_text())

    monkeypatch.setattr("plastax_benchmarks.report.live.sleep", finish)
    assert follow([folder], tmp_path / "out", every=7, log=said.append)
    assert said == ["Written. Incomplete: a (5 of 8 tasks).", "Written."]
    assert len(pages) == 2
    refresh = ("meta", {"http-equiv": "refresh", "content": "7"})
    assert refresh in Page(pages[0]).tags
    assert refresh not in Page((tmp_path / "out" / "index.html").read_text()).tags
    # The command ends at once if there is nothing to wait for.
    report([whole], tmp_path / "again", live=True)
    assert "All runs are complete." in capsys.readouterr().out


def test_live_waits_for_the_first_task_and_stops_on_ctrl_c(tmp_path, monkeypatch, capsys):
    empty = write_run(tmp_path / "empty", [], config={"num_tasks": 3})
    waited = []

    def interrupt(seconds):
        waited.append(seconds)
        raise KeyboardInterrupt

    monkeypatch.setattr("plastax_benchmarks.report.live.sleep", interrupt)
    report([empty], tmp_path / "out", live=True, every=5)
    printed = capsys.readouterr().out
    assert waited == [5]
    assert "Waiting for the first task to end." in printed
    assert "Stopped." in printed
    # Before its first task has ended, a run has no metrics.
    (empty / "metrics.jsonl").unlink()
    whole = write_run(tmp_path / "whole", EIGHT)
    report([empty, whole], tmp_path / "out", live=True, every=5)
    assert "Written. Incomplete: empty (not yet started)." in capsys.readouterr().out
    with pytest.raises(SystemExit, match=r"no run found in .*missing"):
        report([tmp_path / "missing"], tmp_path / "out", live=True)
    with pytest.raises(SystemExit, match="--live needs --out"):
        report([empty], live=True)
    with pytest.raises(SystemExit, match="--every must be at least 1 second, got 0"):
        report([empty], tmp_path / "out", live=True, every=0)


def test_the_command_names_the_files(tmp_path, capsys):
    report([write_run(tmp_path / "a", EIGHT)], tmp_path / "out")
    said = re.sub(r"\s+", " ", capsys.readouterr().err)
    for name in ("index.html", "tables.md", "tables.tex", "summary.json", "report.png", "report.svg", "figures/"):
        assert name in said
        assert (tmp_path / "out" / name).exists()
