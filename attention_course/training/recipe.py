"""The hyperparameters of a training run, and the record of its losses."""

import math
import numbers
from dataclasses import dataclass, field

from torch import nn

from attention_course.checks import check_numbers, check_type, real
from attention_course.names import look_up, shown

PRECISIONS: dict[str, None] = dict.fromkeys(("auto", "float32", "bfloat16"))


@dataclass(frozen=True)
class Recipe:
    """The hyperparameters of a training run.

    Attributes:
        steps: number of optimizer steps.
        batch_size: sequences of block_size tokens per step, over all processes.
        learning_rate: the maximum, reached by linear warmup and followed by cosine decay.
        final_learning_rate: the learning rate at the end of the decay.
        warmup: number of warmup steps.
        weight_decay: of matrices; biases and LayerNorms have none.
        beta2: of AdamW, the decay rate of the average of squared gradients.
        clip: maximum gradient norm.
        evaluate_every: steps between evaluations.
        evaluate_blocks: blocks of block_size tokens per evaluation, spread over the validation text (cf.
            eval_iters in nanoGPT's train.py); the last evaluation uses the whole text.
        precision: "float32", "bfloat16", or "auto": the faster one on this machine.
        seed: of batches and dropout.

    Raises:
        ValueError: a value is out of range.
    """

    steps: int = 600
    batch_size: int = 24
    learning_rate: float = 8e-3
    final_learning_rate: float = 0.0
    warmup: int = 50
    weight_decay: float = 0.1
    beta2: float = 0.95
    clip: float = 1.0
    evaluate_every: int = 100
    evaluate_blocks: int = 2000
    precision: str = "auto"
    seed: int = 0

    def __post_init__(self):
        for name in ("steps", "batch_size", "evaluate_every", "evaluate_blocks", "warmup"):
            value, least = getattr(self, name), 0 if name == "warmup" else 1
            if isinstance(value, bool) or not isinstance(value, int) or not least <= value < 2**31:
                raise ValueError(
                    f"Recipe: {name} = {shown(value)}, expected an integer of at least {least}, below 2**31."
                )
        if isinstance(self.seed, bool) or not isinstance(self.seed, int) or not 0 <= self.seed < 2**63:
            raise ValueError(f"Recipe: seed = {shown(self.seed)}, expected an integer, 0 <= seed < 2**63.")
        for name in ("learning_rate", "clip", "beta2", "weight_decay", "final_learning_rate"):
            value, below = getattr(self, name), 1 if name == "beta2" else math.inf
            least = math.ulp(0.0) if name in ("learning_rate", "clip") else 0
            if not isinstance(value, numbers.Real) or not least <= real(value) < below:
                expected = "a finite number above 0" if least else f"a number, 0 <= {name} < {below}"
                raise ValueError(f"Recipe: {name} = {shown(value)}, expected {expected}.")
            object.__setattr__(self, name, float(value))  # NumPy's numbers do not load with weights_only
        look_up(self.precision, PRECISIONS, "precision")

    def learning_rate_at(self, step: int) -> float:
        """Return the learning rate of step `step`, counted from 0."""
        if step < self.warmup:
            return self.learning_rate * (step + 1) / self.warmup
        done = min(1.0, (step - self.warmup) / max(1, self.steps - self.warmup))
        falling = 0.5 * (1 + math.cos(math.pi * done))
        return self.final_learning_rate + falling * (self.learning_rate - self.final_learning_rate)


def parameter_groups(model: nn.Module, weight_decay: float) -> list[dict]:
    """Return parameter groups with weight decay on matrices only (`configure_optimizers` in nanoGPT)."""
    check_type(model, nn.Module, "parameter_groups", "model")
    check_numbers("parameter_groups", 0, weight_decay=weight_decay)
    parameters = list(model.parameters())
    groups = [
        {"params": [p for p in parameters if p.dim() >= 2], "weight_decay": weight_decay},
        {"params": [p for p in parameters if p.dim() < 2], "weight_decay": 0.0},
    ]
    return [group for group in groups if group["params"]]


@dataclass
class History:
    """The losses of a training run, in nats per token.

    Attributes:
        losses: training loss of every step.
        val_steps: steps after which the validation loss was measured.
        val_losses: the validation losses.
        val_seconds: seconds of training until then, without the evaluations.
        stopped: whether the training was stopped before its end.
    """

    losses: list[float] = field(default_factory=list)
    val_steps: list[int] = field(default_factory=list)
    val_losses: list[float] = field(default_factory=list)
    val_seconds: list[float] = field(default_factory=list)
    stopped: bool = False


MODEL_CONFIGS = {
    "stories": dict(block_size=128, n_layer=2, n_head=4, n_embd=64),
    "shakespeare": dict(block_size=64, n_layer=4, n_head=4, n_embd=128),
    "shakespeare-gpu": dict(block_size=256, n_layer=6, n_head=6, n_embd=384, dropout=0.2),
}
RECIPES = {
    "stories": Recipe(steps=1200, learning_rate=8.4e-3),
    "shakespeare": Recipe(steps=1100, batch_size=20, learning_rate=2.5e-3, evaluate_every=100),
    "shakespeare-gpu": Recipe(steps=5000, batch_size=64, learning_rate=2e-3, warmup=200, evaluate_every=250),
}
