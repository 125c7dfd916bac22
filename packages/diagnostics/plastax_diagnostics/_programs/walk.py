"""The one walk over the program of a model, equation by equation."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from jax.extend import core


Step = Callable[[Any, list[Any]], Sequence[Any]]
"""From an equation and what is known of its operands to what is known of each of its results."""

CALLS = {"jit": "jaxpr", "pjit": "jaxpr", "closed_call": "call_jaxpr", "checkpoint": "jaxpr", "remat2": "jaxpr"}
"""Programs inside programs that do not change derivatives, and the parameter that holds the inner one."""

CUSTOM_CALLS = {"custom_jvp_call": "call_jaxpr", "custom_vjp_call": "call_jaxpr"}
"""Programs inside programs that come with their own derivatives."""


def walk(
    jaxpr: core.Jaxpr, consts: Sequence[Any], arguments: Sequence[Any], step: Step, constant: Callable[[Any], Any]
) -> list[Any]:
    """Carries something along a program, from its arguments to its results: values, marks on them, or both.

    **Arguments:**

    - `jaxpr`, `consts`: the program and its constants.
    - `arguments`: what is known of each argument.
    - `step`: called for every equation. It may walk through inner programs itself, see `inner_program`.
    - `constant`: what is known of a constant or a literal, from its value.

    **Returns:**

    What is known of each result of the program.
    """
    known = dict(zip(jaxpr.constvars, map(constant, consts), strict=True))
    known |= dict(zip(jaxpr.invars, arguments, strict=True))

    def read(atom):
        return constant(atom.val) if isinstance(atom, core.Literal) else known[atom]

    for equation in jaxpr.eqns:
        results = step(equation, [read(atom) for atom in equation.invars])
        known.update(zip(equation.outvars, results, strict=True))
    return [read(atom) for atom in jaxpr.outvars]


def inner_program(equation: Any, *, custom: bool) -> tuple[core.Jaxpr, Sequence[Any]] | None:
    """The program that an equation calls and its constants; `None` for all other equations.

    With `custom`, functions with their own derivatives count as calls.
    """
    calls = CALLS | CUSTOM_CALLS if custom else CALLS
    name = equation.primitive.name
    if name not in calls:
        return None
    inner = equation.params[calls[name]]
    return (inner.jaxpr, inner.consts) if isinstance(inner, core.ClosedJaxpr) else (inner, [])


def equations(jaxpr: core.Jaxpr) -> Iterator[Any]:
    """All equations of a program and of the programs inside it."""
    yield from jaxpr.eqns
    for inner in core.subjaxprs(jaxpr):
        yield from equations(inner)
