"""A report in a notebook, in a pickle, and functions that are written again at each call."""

import logging
import pickle
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import pytest

import plastax_diagnostics as diagnostics
from plastax_diagnostics._operators.function import warn_if_written_in_a_loop


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
    """The text of all cells, and whether every element is closed in order."""

    def __init__(self, text):
        super().__init__()
        self.open, self.kinds, self.cells = [], set(), []
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


def test_a_notebook_shows_tables_whatever_the_names_hold(report):
    page = Page(report._repr_html_())
    assert not page.open
    assert page.kinds == {"b", "div", "table", "tr", "th", "td", "details", "summary"}  # No script.
    assert "<b>&" in page.cells
    assert "['<script>alert(1)</script>']" in page.cells
    for expected in ("Hessian", "loss-weighted Gram", f"{report.hessian.largest:.3g}", str(report.hessian.size)):
        assert expected in page.cells
    assert report.verdict in report._repr_html_()


def test_a_report_without_a_gram_matrix_is_shown_too(report):
    import dataclasses

    page = Page(dataclasses.replace(report, gram=None, residual=None, condition=None, layers=())._repr_html_())
    assert not page.open
    assert "not applicable" in page.cells


def test_a_report_pickles(report):
    loaded = pickle.loads(pickle.dumps(report))
    assert loaded == report
    assert str(loaded) == str(report)
    assert loaded.scalars() == report.scalars()


def test_the_third_function_with_the_same_code_is_named_once(caplog):
    def looped():
        return lambda params, inputs: inputs @ params

    once = looped()
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            warn_if_written_in_a_loop(once, "cross_entropy", None)
        warn_if_written_in_a_loop(looped())
        assert not caplog.messages
        for _ in range(3):
            warn_if_written_in_a_loop(looped())
    (message,) = caplog.messages
    assert "function object number 3" in message
    assert "test_report_shown.py" in message
    assert "keep one plastax_diagnostics.Monitor" in message
