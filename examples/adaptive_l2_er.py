"""L2-ER that is on only while the effective rank is low compared with the start.

A small network learns one random labeling after another, and its effective rank falls. The rule measures it every 20
steps, and pays for effective-rank gradients only while it is below the start.
"""

import jax
import optax

import plastax


PER_TASK, INTERVAL = 200, 20


def main(tasks: int = 15) -> tuple[float, float, float]:
    inputs = jax.random.normal(jax.random.key(1), (64, 8))
    keys = jax.random.split(jax.random.key(0), 3)
    sizes = (8, 32, 32, 4)
    start = {
        f"dense{i}": jax.random.normal(key, (sizes[i], sizes[i + 1])) * (2 / sizes[i]) ** 0.5
        for i, key in enumerate(keys)
    }

    def features(params, inputs):
        first = jax.nn.relu(inputs @ params["dense0"])
        return {"first": first, "second": jax.nn.relu(first @ params["dense1"])}

    def loss(params, labels):
        outputs = features(params, inputs)["second"] @ params["dense2"]
        return optax.softmax_cross_entropy_with_integer_labels(outputs, labels).mean()

    def train(optimizer):
        @jax.jit
        def task(params, opt_state, key):
            labels = jax.random.randint(key, (64,), 0, 4)

            def step(carry, _):
                params, opt_state = carry
                gradients = jax.grad(loss)(params, labels)
                updates, opt_state = optimizer.update(gradients, opt_state, params, inputs=inputs)
                return (optax.apply_updates(params, updates), opt_state), None

            return jax.lax.scan(step, (params, opt_state), length=PER_TASK)[0]

        params, opt_state = start, optimizer.init(start)
        for number in range(tasks):
            params, opt_state = task(params, opt_state, jax.random.key(number))
        return -float(plastax.effective_rank_loss(features(params, inputs))), opt_state

    sgd = optax.with_extra_args_support(optax.sgd(0.3))
    l2_er = plastax.l2_er(features, weight_decay=1e-3, er_weight=1e-2)
    rule = plastax.while_rank_low(l2_er, features, 1.0, interval=INTERVAL)
    plain, _ = train(sgd)
    adaptive, opt_state = train(optax.chain(rule, sgd))
    share = float(opt_state[0].taken / (tasks * PER_TASK))
    print(f"effective rank after {tasks} tasks: {plain:.1f} with SGD, {adaptive:.1f} with the rule, on for {share:.0%}")
    return plain, adaptive, share


if __name__ == "__main__":
    main()
