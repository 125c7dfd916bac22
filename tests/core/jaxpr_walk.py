"""Looking into a traced program."""


def primitives(jaxpr, inside=False):
    """(name, inside a cond?, shape of its first operand) of all equations."""
    for equation in jaxpr.eqns:
        yield equation.primitive.name, inside, equation.invars[0].aval.shape if equation.invars else None
        for value in equation.params.values():
            for sub in value if isinstance(value, tuple | list) else [value]:
                sub = getattr(sub, "jaxpr", sub)
                if hasattr(sub, "eqns"):
                    yield from primitives(sub, inside or equation.primitive.name == "cond")
