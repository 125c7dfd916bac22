"""Fixtures of several files."""

import pytest


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
