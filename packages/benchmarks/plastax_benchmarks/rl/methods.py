"""The methods: each a few words about what is added to the optimizer."""

from dataclasses import dataclass
from typing import Literal

import jax
import jax.numpy as jnp
import optax

import plastax

from .config import AntConfig
from .ppo import OptimizerOf


@dataclass(frozen=True)
class Recipe:
    """What a method is made of."""

    l2: bool = False
    effective_rank: bool = False
    spectral: bool = False
    layer_norm: bool = False
    resets: Literal["cbp", "redo"] | None = None


RECIPES = {
    "bp": Recipe(),
    "l2": Recipe(l2=True),
    "er": Recipe(effective_rank=True),
    "l2_er": Recipe(l2=True, effective_rank=True),
    "cbp_l2": Recipe(l2=True, resets="cbp"),
    "layernorm_l2": Recipe(l2=True, layer_norm=True),
    "spectral": Recipe(spectral=True),
    "redo": Recipe(resets="redo"),
}


def features(model: plastax.models.ActorCritic, observations):
    """The hidden features of actor and critic, on which effective rank is raised."""
    return model(observations)[1]


def base_optimizer(config: AntConfig, resets_units: bool) -> optax.GradientTransformationExtraArgs:
    """Adam, SGD or Muon; where units are reset, Adam with a count for each entry."""
    steps = config.windows * config.update_log_freq * config.update_epochs * config.num_minibatches
    rate = optax.linear_schedule(config.lr, 0.0, steps) if config.anneal_lr else config.lr
    if config.optimizer == "sgd":
        made = optax.sgd(rate)
    elif config.optimizer == "muon":
        made = optax.contrib.muon(rate, adam_b1=config.beta_1, adam_b2=config.beta_2)
    elif resets_units:
        made = plastax.resettable_adam(rate, config.beta_1, config.beta_2)
    else:
        made = optax.adam(rate, config.beta_1, config.beta_2)
    return optax.with_extra_args_support(made)


def optimizer_for(config: AntConfig, observation_size: int, action_size: int) -> OptimizerOf:
    """The optimizer of a method, for a configuration whose method's values are all given (see `rl/presets.py`).

    **Arguments:**

    - `config`: the configuration.
    - `observation_size`, `action_size`: of the environment.

    **Returns:**

    A function from a key, for what the method draws, to the optimizer.
    """
    recipe = RECIPES[config.method]
    minibatch = jax.ShapeDtypeStruct((config.minibatch_rows, observation_size), jnp.float32)
    # Where units live is a question of structure alone, so any model of the same shape will do.
    units = ()
    if recipe.resets:
        units = plastax.models.ActorCritic(
            observation_size, action_size, config.hidden_size, activation=config.activation, key=jax.random.key(0)
        ).resettable_units()
    lecun = jax.nn.initializers.lecun_uniform()

    def optimizer_of(key):
        parts = [optax.clip_by_global_norm(config.max_grad_norm)]
        if recipe.l2:
            parts.append(optax.add_decayed_weights(_value(config, "weight_decay")))
        if recipe.spectral:
            parts.append(plastax.spectral_penalty(_value(config, "spectral_strength"), key=key))
        step = base_optimizer(config, recipe.resets is not None)
        if recipe.resets == "cbp":
            step = plastax.continual_backprop(
                step,
                units,
                replacement_rate=_value(config, "replacement_rate"),
                decay_rate=config.decay_rate,
                maturity_threshold=config.maturity_threshold,
                key=key,
            )
        elif recipe.resets == "redo":
            step = plastax.redo(
                step,
                units,
                threshold=_value(config, "redo_threshold"),
                interval=config.redo_interval,
                key=key,
                unit_init=lecun,
            )
        parts.append(step)
        if recipe.effective_rank:
            parts.append(
                plastax.effective_rank_step(
                    features,
                    _value(config, "er_lr"),
                    interval=config.er_batch,
                    window=config.er_window or config.er_batch,
                    steps=config.er_step,
                    inputs_like=minibatch,
                )
            )
        return optax.chain(*parts)

    return optimizer_of


def _value(config: AntConfig, name: str) -> float:
    value = getattr(config, name)
    if value is None:
        raise ValueError(f"method {config.method!r} needs {name}: give it, or take the preset's with fill_in(config)")
    return value
