"""The columns of `points.csv`, in words."""

from .measures import LINEAR_SIDES, TRIAL_STEPS


_NAMES = {
    "setting": "problem, network and optimizer, by a short name",
    "half": "choice: measures were compared on it, and the score chosen; test: it was tested on it",
    "problem": "name of the problem",
    "network": "kind of network",
    "activation": "activation of its hidden layers",
    "optimizer": "optimizer of the training",
    "method": "method of the training",
    "seed": "seed of the stream of tasks and of the network",
    "task": "task that is about to begin, from 0",
    "fresh": "-1 for the network that is trained task after task; 0, 1, ... for new networks on this task",
}

_MEASURES = {
    "dead": "fraction of units that are zero on all rows",
    "dormant": "fraction of units below 0.025 of their layer's mean activity",
    "always_active": "fraction of units that are positive on all rows",
    "hessian_rank": "epsilon-rank of the Hessian at the step budget",
    "ggn_rank": "epsilon-rank of the loss-weighted Gram matrix (of the Gauss-Newton matrix) at the step budget",
    "residual_left": "fraction of the squared residual that the quadratic model keeps after the budget",
    "fast_fraction": "fraction of the squared residual in fast directions: its reachable share",
    "confident_mistakes": "fraction of the squared residual on rows whose class has a probability below 1 %",
    "condition_margin": "necessary condition: the fast fraction minus the required one",
    "step_size": "learning rate of the budget x largest eigenvalue of the Gram matrix",
    "effective_rank": "effective rank of the features, mean over layers",
    "last_effective_rank": "effective rank of the last layer's features",
    "stable_rank": "stable rank of the features, mean over layers",
    "feature_norm": "mean norm of the last layer's features",
    "weight_norm": "norm of all parameters",
    "gradient_norm": "norm of the gradient of the loss",
    "loss": "loss of the new task before training",
    "sharpness": "largest eigenvalue of the Hessian",
    "trace": "trace of the Hessian, estimated",
    "ntk_condition": "largest over smallest eigenvalue of the tangent kernel, at most one over its rounding",
    "ntk_effective_rank": "effective rank of the tangent kernel: exp of the entropy of its eigenvalues",
    "ntk_trace": "trace of the tangent kernel",
    "base_loss": "loss of the best constant prediction on the rows of the measures",
    "base_accuracy": "accuracy of the best constant prediction on these rows",
    "rate": "learning rate of the budget",
    "steps": "steps of the task",
    "seconds": "wall time of the measures",
}

_LINEAR = {
    f"{name}_{what}": f"{words} (tangent kernels of side {side} or less; 16 windows of sequences)"
    for name, side in LINEAR_SIDES.items()
    for what, words in {
        "base_loss": "loss of the best constant prediction on the rows of the kernel",
        "base_accuracy": "accuracy of the best constant prediction there",
        "start_accuracy": "accuracy there before training",
        "accuracy": "accuracy of the linearized network there after the budget",
        "loss": "loss of the linearized network there after the budget",
    }.items()
}

_TRIALS = {
    f"{name}_{what}_{steps}": f"{what} after {steps} full-batch steps (or the last one) with {optimizer}"
    for name, optimizer in (("trial", "plain SGD"), ("own_trial", "the optimizer of the setting"))
    for what in ("loss", "accuracy")
    for steps in TRIAL_STEPS
}

_RESULTS = {
    "early_loss": "loss on training rows after a tenth of the task",
    "early_accuracy": "accuracy on training rows after a tenth of the task",
    "reached_loss": "loss on training rows at the end of the task",
    "reached_accuracy": "accuracy on training rows at the end of the task",
    "constant_loss": "loss of the best constant prediction on these rows",
    "constant_accuracy": "accuracy of the best constant prediction on these rows",
    "online_loss": "mean loss over the steps of the task",
    "online_accuracy": "mean accuracy over the steps of the task",
    "test_loss": "loss on held-out rows at the end of the task",
    "test_accuracy": "accuracy on held-out rows at the end of the task",
}

COLUMNS = _NAMES | _MEASURES | _LINEAR | _TRIALS | _RESULTS
