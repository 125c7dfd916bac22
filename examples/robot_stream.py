"""A robot's stream of sensor readings, with a monitor: an arm learns to predict its own motion while it changes.

A two-joint arm moves under random torques. A network predicts the change of its angles and velocities in the next time
step, from one reading at a time, and never stops learning. In each phase the arm picks up another load and its joints
wear. After each phase, the monitor measures the loss, dead units, effective rank and curvature on recent readings.
"""

import jax
import jax.numpy as jnp
import optax

import plastax
import plastax_diagnostics as diagnostics


STEP, RATE = 0.05, 1e-2


def move(state, torque, load, friction):
    """One time step of an arm of two joints with unit links: angles and velocities [4]."""
    angles, speeds = state[:2], state[2:]
    bend = jnp.cos(angles[1])
    inertia = jnp.array([[3 + 2 * bend, 1 + bend], [1 + bend, 1.0]]) * (1 + load)
    turning = jnp.sin(angles[1]) * jnp.array([-speeds[1] * (2 * speeds[0] + speeds[1]), speeds[0] ** 2])
    push = torque - friction * speeds - turning * (1 + load)
    speeds = jnp.clip(speeds + STEP * jnp.linalg.solve(inertia, push), -4, 4)
    return jnp.concatenate([(angles + STEP * speeds + jnp.pi) % (2 * jnp.pi) - jnp.pi, speeds])


def sense(state, torque):
    """What the network reads: sines and cosines of angles, velocities and torques, [8]."""
    return jnp.concatenate([jnp.sin(state[:2]), jnp.cos(state[:2]), state[2:] / 2, torque])


def stream(key, start, steps, load, friction):
    """Readings [steps, 8], and what is to be predicted [steps, 2]: the change of the velocities, scaled."""

    def step(state, key):
        torque = 3 * jax.random.normal(key, (2,))
        after = move(state, torque, load, friction)
        return after, (sense(state, torque), 4 * (after[2:] - state[2:]))

    return jax.lax.scan(step, start, jax.random.split(key, steps))


def main(steps: int = 4000, phases: int = 4, er_weight: float = 1e-3) -> list[dict[str, float]]:
    network = plastax.models.MLP(8, 2, 64, 2, key=jax.random.key(0))
    model = diagnostics.apply_model(network)
    # Effective rank of the last 50 readings, every 50 steps: as often as a robot has time for it.
    regularizer = plastax.l2_er(
        model.features,
        weight_decay=1e-4,
        er_weight=er_weight,
        interval=50,
        window=50,
        inputs_like=jax.ShapeDtypeStruct((1, 8), jnp.float32),
        layers=network.rank_layers,
    )
    optimizer = optax.chain(regularizer, optax.clip_by_global_norm(1.0), optax.sgd(RATE))
    budget = diagnostics.StepBudget(learning_rate=RATE, steps=steps)
    monitor = diagnostics.Monitor(model, "squared_error", budget, samples=256)
    loss = diagnostics.task_loss(model, "squared_error")

    @jax.jit
    def learn(params, opt_state, inputs, targets):
        def step(carry, reading):
            params, opt_state = carry
            x, y = (part[None] for part in reading)
            error, gradients = jax.value_and_grad(loss)(params, (x, y))
            updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=x)
            return (optax.apply_updates(params, updates), opt_state), error

        return jax.lax.scan(step, (params, opt_state), (inputs, targets))

    move_arm = jax.jit(stream, static_argnames="steps")
    params, state, measured = network, jnp.zeros(4), []
    opt_state = optimizer.init(params)
    for phase in range(phases):
        load, friction = jax.random.uniform(jax.random.key(phase), (2,), minval=jnp.array([0.0, 0.1]))
        state, (inputs, targets) = move_arm(jax.random.key(10 + phase), state, steps, 2 * load, friction)
        (params, opt_state), errors = learn(params, opt_state, inputs, targets)
        numbers = monitor.measure(params, (inputs[-256:], targets[-256:]), jax.random.key(1))
        first, last = (float(jnp.mean(part)) for part in (errors[: steps // 10], errors[-steps // 10 :]))
        print(
            f"phase {phase + 1} (load {2 * load:.1f}, friction {friction:.1f}): error {first:.3f} -> {last:.3f}, "
            f"dead units {numbers['layers/dense2/dead']:.0%}, "
            f"effective rank {numbers['layers/dense2/effective_rank']:.1f} of 64, "
            f"sharpness times learning rate {RATE * numbers['hessian/largest']:.2f}"
        )
        measured.append(numbers | {"first": first, "last": last})
        opt_state = plastax.restart_windows(opt_state)
    return measured


if __name__ == "__main__":
    main()
