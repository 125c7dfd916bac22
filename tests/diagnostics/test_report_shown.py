"""A report in a notebook and in a pickle."""

import dataclasses
import pickle
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import pytest

import plastax_diagnostics as diagnostics
from plastax_diagnostics import Estimate, Plasticity


@pytest.fixture(scope="module")
def report():
    data = (jax.random.normal(jax.random.key(0), (6, 3)), jnp.arange(6) % 2)
    return diagnostics.plasticity_report(
        lambda params, inputs: inputs @ params["<script>alert(1)</script>"],
        "cross_entropy",
        {"<script>alert(1)</script>": jnp.ones((3, 2))},
        data,
        diagnostics.StepBudget(learning_rate=0.1, steps=100),
        key=jax.random.key(1),
        features=lambda params, inputs: {"<b>&": inputs},
    )


class Page(HTMLParser):
    """The text of all cells and of all lines, and whether every element is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.kinds, self.cells, self.lines = [], set(), [], []
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attrs):
        self.open.append(tag)
        self.kinds.add(tag)
        if tag in ("td", "th"):
            self.cells.append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and self.open[-1] in ("td", "th"):
            self.cells[-1] += data
        if self.open and self.open[-1] == "div":
            self.lines.append(data)


def test_a_notebook_shows_tables_whatever_the_names_hold(report):
    page = Page(report._repr_html_())
    assert not page.open
    assert page.kinds == {"b", "div", "table", "tr", "th", "td", "details", "summary"}  # No script.
    assert "<b>&" in page.cells
    assert "['<script>alert(1)</script>']" in page.cells
    for expected in ("Hessian", "loss-weighted Gram", f"{report.hessian.largest:.3g}", str(report.hessian.size)):
        assert expected in page.cells
    assert report.verdict in report._repr_html_()


def test_text_and_notebooks_explain_the_same(report):
    """Of a report with a score, an epsilon-rank of too low an order, and two fast fractions."""
    score = Plasticity(0.4, 0.3, 0.6, 0.1, (0.2, 0.3), constant_loss=0.7, steps=10, samples=6)
    unresolved = dataclasses.replace(
        report.hessian, epsilon_rank=Estimate(3.0, 1.0, 2.0, 4.0, resolved=False), exact=False, probes=2
    )
    shown = dataclasses.replace(report, plasticity=score, hessian=unresolved, samples_given=4000)
    assert shown.condition.contraction != shown.budget.contraction
    page, text = Page(shown._repr_html_()), " ".join(str(shown).split())
    assert "3 ?" in page.cells
    for words in (
        "0.40 [0.30, 0.60] on 6 of 4000 samples: 1 learns like a new network, 0 cannot learn",
        "over 6 of 4000 samples",
        "at most 0.001 is left after these steps",
        "epsilon-rank: the number of eigenvalues above eps in absolute value",
        '"?": the order is too low.',
        "come from 2 random probes",
        "which is what its goal is about: its fraction is another number.",
        "dormant: nearly silent for its layer",
    ):
        assert sum(words in line for line in page.lines) == 1
        assert words in text


def test_a_report_without_a_gram_matrix_is_shown_too(report):
    page = Page(dataclasses.replace(report, gram=None, residual=None, condition=None, layers=())._repr_html_())
    assert not page.open
    assert "not applicable" in page.cells


def test_a_report_pickles(report):
    loaded = pickle.loads(pickle.dumps(report))
    assert loaded == report
    assert str(loaded) == str(report)
    assert loaded.scalars() == report.scalars()
