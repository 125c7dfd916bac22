"""Fixtures of several files."""

import jax
import jax.numpy as jnp
import pytest

import plastax_diagnostics as diagnostics


@pytest.fixture
def wandb_offline(tmp_path, monkeypatch):
    """Weights & Biases without a network and without settings of the user."""
    import wandb

    monkeypatch.setenv("WANDB_MODE", "offline")
    for name in ("CONFIG", "CACHE", "DATA"):
        monkeypatch.setenv(f"WANDB_{name}_DIR", str(tmp_path / "settings"))
    for name in ("PROJECT", "RUN_GROUP"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    monkeypatch.chdir(tmp_path)
    wandb.teardown()  # Settings are read once.
    yield
    wandb.teardown()


@pytest.fixture(scope="session")
def small_report():
    """A plasticity report of a small linear network."""
    data = (jax.random.normal(jax.random.key(0), (6, 3)), jnp.arange(6) % 2)
    return diagnostics.plasticity_report(
        lambda params, inputs: inputs @ params,
        "cross_entropy",
        jnp.ones((3, 2)),
        data,
        diagnostics.StepBudget(learning_rate=0.1, steps=100),
        key=jax.random.key(1),
    )
