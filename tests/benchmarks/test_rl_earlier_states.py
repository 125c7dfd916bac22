"""The form of agents in checkpoints of the version before nested settings."""

import jax
import pytest
from rl_support import Sledge, tiny

from plastax_benchmarks.rl.agent import EARLIER_AGENT
from plastax_benchmarks.rl.programs import AntPrograms
from plastax_benchmarks.training.stored import earlier_form


LAYERS = [f"{part}.{place}" for part in ("actor", "critic") for place in ("hidden[0].layer", "head")]
ARRAYS = [f"{layer}.{name}" for layer in LAYERS for name in ("kernel", "bias")] + ["log_std"]
ADAM = ["[0].count", *(f"[0].{name}.{array}" for name in ("mu", "nu") for array in ARRAYS)]
RESETTABLE_ADAM = [f"inner[0].{name}.{array}" for name in ("count", "mean", "square") for array in ARRAYS]
STATISTICS = [f"layers[{i}].{name}" for i in (0, 1) for name in ("age", "utility", "mean", "accumulator")]
EARLIER_STATES = {
    "bp": [f"[1]{name}" for name in ADAM],
    "l2_er": [
        *(f"[2]{name}" for name in ADAM),
        *(f"[3].{name}" for name in ("count", "batches", "updates", "effective_rank")),
    ],
    "spectral": [*(f"[1].{name}" for name in ("vectors[0]", "vectors[1]", "vectors[2]", "vectors[3]", "key"))]
    + [f"[2]{name}" for name in ADAM],
    "cbp_l2": [f"[2].{name}" for name in (*RESETTABLE_ADAM, "step", "key", *STATISTICS, "replaced")],
    "redo": [f"[1].{name}" for name in (*RESETTABLE_ADAM, "step", "key", "activity[0]", "activity[1]", "replaced")],
}
"""The paths of the optimizer's state in checkpoints of that version."""


@pytest.mark.parametrize("method", EARLIER_STATES)
def test_states_of_earlier_versions(method):
    config = tiny(method)
    target = jax.eval_shape(AntPrograms(config, Sledge()).init)
    earlier = earlier_form(config, target, EARLIER_AGENT)
    paths = [jax.tree_util.keystr(path) for path, _ in jax.tree_util.tree_flatten_with_path(earlier)[0]]
    states = [path.removeprefix(".optimizer") for path in paths if path.startswith(".optimizer")]
    assert states == EARLIER_STATES[method]
    others = [path for path in paths if not path.startswith((".optimizer", ".episodes.state"))]
    assert others == [
        *(f".model.{array}" for array in ARRAYS),
        *(f".normaliser.{name}" for name in ("count", "mean", "squares")),
        *(f".episodes.{name}" for name in ("key", "length", "total")),
        ".key",
        ".step",
    ]
