"""Slippery Ant: continual reinforcement learning with PPO on a floor whose friction changes."""
