"""A decoder-only transformer."""

from typing import SupportsIndex

import equinox as eqx
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, PRNGKeyArray, PyTree

from .._units.description import Units
from .activations import features_per_unit
from .attention import Attention
from .base import Model, as_size, check_tokens
from .nn import Dense, Hidden, LayerNorm, RMSNorm
from .positions import POSITIONS
from .units import check_one_feature_per_unit, resettable


class MLPBlock(eqx.Module):
    """The MLP of a block: a hidden layer, and the layer that adds to the residual stream."""

    hidden: Hidden
    out: Dense


class Block(eqx.Module):
    """Attention and an MLP, each with a norm in front, both added to the residual stream."""

    attention_norm: LayerNorm | RMSNorm
    attention: Attention
    mlp_norm: LayerNorm | RMSNorm
    mlp: MLPBlock

    def __call__(self, x: Float[Array, "batch time width"]) -> tuple[Array, Array, Array]:
        """The residual stream after the block, and the features of attention and MLP."""
        added, attention = self.attention(self.attention_norm(x))
        x = x + added
        hidden = self.mlp.hidden(self.mlp_norm(x))
        return x + self.mlp.out(hidden), attention, hidden


class Transformer(Model):
    """A decoder-only language model: pre-norm blocks of causal attention and an MLP.

    It takes whole sequences of integer tokens, [batch, time], and returns the logits of the next token at each
    position, [batch, time, vocabulary]. The logits at a position depend on the tokens up to it.

    **Features** are [batch, time, units], for each block:

    - `"block1.attention"`, ...: the heads' averages of values, as the output projection reads them ([batch, time,
        width]).
    - `"block1.mlp"`, ...: the hidden layer of the MLP after its activation, as the second layer reads it ([batch, time,
        mlp_width]).

    Methods that reset units, measurements of units and effective rank take them as they are: each position is a row.

    **The rank of the MLPs counts** (`rank_layers`), and not that of attention. The hidden layer of an MLP is the only
    place where units can die, so it is what the other networks' hidden layers are. Attention averages: at the first
    position it passes on a single value, and with equal weights it passes on the same average everywhere, so that a
    low rank need not be a loss. To choose otherwise, pass `layers=` to `plastax.l2_er`.

    Hidden layers of MLPs start He-uniform, as in [`plastax.models.MLP`][], which is also how new units are drawn. Other
    kernels are LeCun-normal. Those of layers that add to the residual stream are divided by the square root of the
    number of such layers. Embeddings are normal with variance 1 / width.

    A token outside of the vocabulary raises an error. In a compiled program it cannot: all logits of its sequence are
    NaN.

    !!! example

        ```python
        import jax
        import jax.numpy as jnp
        import plastax

        model = plastax.models.Transformer(256, 64, width=32, heads=2, depth=2, key=jax.random.key(0))
        tokens = jnp.array([list(b"to be or not to be")])
        logits, features, _ = model(tokens)
        logits.shape  # (1, 18, 256)
        features["block2.mlp"].shape  # (1, 18, 128)
        ```
    """

    token_embedding: Float[Array, "vocabulary width"]
    position_embedding: Float[Array, "context width"] | None
    blocks: tuple[Block, ...]
    norm: LayerNorm | RMSNorm
    head: Dense
    context: int = eqx.field(static=True)

    def __init__(
        self,
        vocabulary: SupportsIndex,
        context: SupportsIndex,
        width: SupportsIndex = 128,
        heads: SupportsIndex = 4,
        depth: SupportsIndex = 2,
        mlp_width: SupportsIndex | None = None,
        *,
        positions: str = "rotary",
        norm: str = "layer",
        activation: str = "relu",
        layer_norm: bool = False,
        key: PRNGKeyArray,
    ):
        """**Arguments:**

        - `vocabulary`: the number of different tokens.
        - `context`: the largest number of tokens in a sequence.
        - `width`: the width of the residual stream.
        - `heads`: the number of attention heads, which share the width evenly.
        - `depth`: the number of blocks.
        - `mlp_width`: the number of hidden units of each MLP. By default four times `width`.
        - `positions`: `"rotary"` (queries and keys are rotated) or `"learned"` (a vector for each position).
        - `norm`: `"layer"` or `"rms"`.
        - `activation`: of the MLPs, as in [`plastax.models.MLP`][].
        - `layer_norm`: whether to put another LayerNorm before the activation of each MLP.
        - `key`: for the initial parameters.
        """
        vocabulary, context = as_size("vocabulary", vocabulary), as_size("context", context)
        width, heads, depth = as_size("width", width), as_size("heads", heads), as_size("depth", depth)
        mlp_width = 4 * width if mlp_width is None else as_size("mlp_width", mlp_width)
        copies = features_per_unit(activation)
        if positions not in POSITIONS:
            raise ValueError(f"`positions` must be one of {list(POSITIONS)}, got {positions!r}")
        if norm not in _NORMS:
            raise ValueError(f"`norm` must be one of {list(_NORMS)}, got {norm!r}")
        if width % heads:
            raise ValueError(f"`heads` must divide `width`, got {width=} and {heads=}")
        rotary = positions == "rotary"
        if rotary and (width // heads) % 2:
            raise ValueError(
                f"rotary positions need heads of even size, got width / heads = {width // heads}: choose another "
                "width or number of heads, or positions='learned'"
            )
        token_key, position_key, head_key, *keys = jax.random.split(key, 3 + depth)
        make_norm = _NORMS[norm]
        hidden_init, init = jax.nn.initializers.he_uniform(), jax.nn.initializers.lecun_normal()
        # The variance of the residual stream grows by the same amount for any depth.
        out_init = jax.nn.initializers.variance_scaling(1 / (2 * depth), "fan_in", "truncated_normal")
        self.token_embedding = jax.random.normal(token_key, (vocabulary, width)) / width**0.5
        self.position_embedding = None if rotary else jax.random.normal(position_key, (context, width)) / width**0.5

        def block(key: PRNGKeyArray) -> Block:
            attention_key, hidden_key, out_key = jax.random.split(key, 3)
            attention = Attention(width, heads, init, out_init, rotary=rotary, key=attention_key)
            hidden = Dense(width, mlp_width, hidden_init, key=hidden_key)
            mlp = MLPBlock(
                Hidden(hidden, activation=activation, layer_norm=layer_norm),
                Dense(copies * mlp_width, width, out_init, key=out_key),
            )
            return Block(make_norm(width), attention, make_norm(width), mlp)

        self.blocks = tuple(map(block, keys))
        self.norm = make_norm(width)
        self.head = Dense(width, vocabulary, init, key=head_key)
        self.context = context

    def __call__(
        self, x: Array, state: PyTree = None, *, train: bool = False
    ) -> tuple[Float[Array, "batch time vocabulary"], dict[str, Array], PyTree]:
        """Runs a batch.

        **Arguments:**

        - `x`: the tokens, integers [batch, time] from 0 to `vocabulary - 1`.
        - `state`: passed on as it is: this model has none.
        - `train`: makes no difference here.

        **Returns:**

        The logits of the next token at each position, the features by name, and `state`.
        """
        check_tokens(x, len(self.token_embedding), self.context, "Transformer")
        # Compiled programs cannot raise an error. NaN is better than the logits of some other token.
        stream = self.token_embedding.at[x].get(mode="fill", fill_value=jnp.nan, wrap_negative_indices=False)
        if self.position_embedding is not None:
            stream = stream + self.position_embedding[: x.shape[1]]
        features = {}
        for number, block in enumerate(self.blocks, 1):
            stream, features[f"block{number}.attention"], features[f"block{number}.mlp"] = block(stream)
        return self.head(self.norm(stream)), features, state

    @property
    def rank_layers(self) -> tuple[str, ...]:
        """Names of the features whose effective rank counts: the hidden layers of all MLPs."""
        return tuple(f"block{i + 1}.mlp" for i in range(len(self.blocks)))

    @property
    def unit_layers(self) -> tuple[str, ...]:
        """Names of the features whose units can die: the hidden layers of all MLPs."""
        return self.rank_layers

    def resettable_units(self) -> tuple[Units, ...]:
        """The units that a unit-resetting method may replace: the hidden units of all MLPs.

        Units have one activity for all tokens: means are over samples and positions. With `layer_norm` a new unit also
        shifts the other units of its layer, through the mean and the variance that they share.
        """
        check_one_feature_per_unit(block.mlp.hidden.activation for block in self.blocks)
        return tuple(
            resettable(
                self,
                name,
                lambda params, i=i: params.blocks[i].mlp.hidden,
                lambda params, i=i: params.blocks[i].mlp.out,
            )
            for i, name in enumerate(self.rank_layers)
        )


_NORMS = {"layer": LayerNorm, "rms": RMSNorm}
