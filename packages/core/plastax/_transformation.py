"""How every transformation of plastax is made."""

from collections.abc import Callable
from typing import Any

import optax

from ._checks import check_params


def transformation(
    name: str, init: Callable[..., Any], update: Callable[..., Any]
) -> optax.GradientTransformationExtraArgs:
    """An optax transformation from `init(params)` and `update(updates, state, params, **extra_args)`.

    The parameters are checked before either runs, and `update` is given whatever extra arguments there are: it must
    ignore those that it does not know.
    """

    def checked_init(params):
        check_params(name, params)
        return init(params)

    def checked_update(updates, state, params=None, **extra_args):
        check_params(name, params)
        return update(updates, state, params, **extra_args)

    return optax.GradientTransformationExtraArgs(checked_init, checked_update)
