"""The speed run: what differs from the recipe of `training`, each trick a switch of its own.

`speedrun(data, tricks)` returns a `Trainer` with these tricks on. The model is a `GPT` with other parts,
the optimizer is `Muon`, the schedule is linear; the text, the loop and the loss are the same. Rotary
positions, Muon and a kind of token shift (smear) are in github.com/KellerJordan/modded-nanogpt, too.
"""

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from dataclasses import replace
from functools import partial
from types import NoneType
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim import Optimizer

from attention_course.attention import Cache, MultiHeadAttention, head_size_of
from attention_course.checks import (
    check_device,
    check_numbers,
    check_sizes,
    check_tokens,
    check_type,
    check_width,
    describe,
    is_float_tensor,
    is_number,
)
from attention_course.gpt import GPT, Block, GPTConfig, autocast_dtype
from attention_course.llama import GroupedQueryAttention, Rotary
from attention_course.names import look_up, shown
from attention_course.text import Corpus
from attention_course.training import MODEL_CONFIGS, RECIPES, Recipe, Trainer

TRICKS = {
    "token_shift": "Attention and MLP also see the previous token, so no layer is needed to find it.",
    "rotary": "Rotary positions say how far back a token is, so what is learned once holds everywhere.",
    "muon": "Muon evens out the step of each matrix, so rare directions learn as fast as frequent ones.",
    "schedule": "After a short warm-up the rate falls along a straight line, so few steps are tiny.",
    "shape": "One layer, and fewer tokens per step, so a step takes a fraction of the time.",
}

FAST_CONFIGS: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {  # the model, and changes of the recipe
    "stories": (
        dict(block_size=128, n_layer=1, n_head=4, n_embd=64),
        dict(steps=660, batch_size=16, learning_rate=1.27e-2),
    ),
    "shakespeare": (dict(block_size=32, n_layer=1, n_head=4, n_embd=96), dict(steps=290, batch_size=32)),
    "shakespeare-long": (
        dict(block_size=128, n_layer=3, n_head=4, n_embd=128, dropout=0.1),
        dict(steps=2500, batch_size=16, learning_rate=8e-3),
    ),
}
ADAM_LR, MUON_LR, WARMUP = 2e-2, 5e-2, 10


def newton_schulz(matrix: Float[Tensor, "*B rows cols"], steps: int = 5) -> Float[Tensor, "*B rows cols"]:
    """Return nearly the orthogonal matrix nearest to a matrix: its singular values become about 1.

    With matrix = U S Vᵀ, each step maps every singular value s to a s + b s³ + c s⁵ and leaves U and V as
    they are. These coefficients, from Keller Jordan's Muon (kellerjordan.github.io/posts/muon), grow small
    values fastest: after 5 steps those above 0.002 of the norm lie between 0.68 and 1.21.

    Args:
        matrix: shape (rows, cols), or several of them (..., rows, cols).
        steps: number of steps.
    """
    check_sizes("newton_schulz", 0, steps=steps)
    if not is_float_tensor(matrix) or matrix.dim() < 2:
        raise TypeError(f"newton_schulz: matrix is {describe(matrix)}, expected a float matrix.")
    a, b, c = 3.4445, -4.7750, 2.0315
    tall = matrix.shape[-2] > matrix.shape[-1]
    x = matrix.mT if tall else matrix  # the smaller Gram matrix
    x = x / (x.norm(dim=(-2, -1), keepdim=True) + 1e-7)
    for _ in range(steps):
        gram = x @ x.mT
        x = a * x + (b * gram + c * gram @ gram) @ x
    return x.mT if tall else x


class Muon(Optimizer):
    """Muon for groups with `orthogonal` set, and AdamW for all others.

    Muon (Jordan et al. 2024, kellerjordan.github.io/posts/muon) takes the momentum of a matrix's gradients,
    and steps along the orthogonal matrix nearest to it: equally far in every direction, however rarely the
    data call for it. That matrix is computed in bfloat16 where this is faster. AdamW is that of Loshchilov
    and Hutter 2019, algorithm 2.

    Args:
        groups: parameter groups, as any optimizer takes them.
        lr: the learning rate.
        momentum: of orthogonal groups.
        betas: of all others.
        weight_decay: the share of a parameter that is lost a step, times lr.
    """

    def __init__(
        self,
        groups: Iterable[dict[str, Any]],
        lr: float = 1e-2,
        momentum: float = 0.9,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.0,
    ):
        check_numbers("Muon", 0, lr=lr, weight_decay=weight_decay)
        two = isinstance(betas, tuple | list) and len(betas) == 2
        if not (two and all(is_number(beta, 0) and beta < 1 for beta in (momentum, *betas))):
            raise ValueError(
                f"Muon: momentum = {shown(momentum)}, betas = {shown(betas)}, expected 0 <= number < 1."
            )
        defaults = dict(lr=lr, momentum=momentum, betas=betas, weight_decay=weight_decay, orthogonal=False)
        try:
            super().__init__(groups, defaults)
        except (TypeError, ValueError) as error:
            raise type(error)(
                f"Muon: groups is {describe(groups)}, expected parameters, or dicts that hold some under "
                f"'params'. Pass model.parameters() or a list. ({error}.)"
            ) from error
        for group in self.param_groups:
            for parameter in group["params"]:
                if group["orthogonal"] and parameter.dim() != 2:
                    shape = tuple(parameter.shape)
                    raise ValueError(f"Muon: a parameter has shape {shape}, expected a matrix.")

    @torch.no_grad()
    def step(self, closure: None = None) -> None:
        """Take one step along the gradients; parameters without one stay."""
        for group in self.param_groups:
            direction = muon_direction if group["orthogonal"] else adam_direction
            for parameter in group["params"]:
                if parameter.grad is not None:
                    parameter.mul_(1 - group["lr"] * group["weight_decay"])
                    parameter.sub_(group["lr"] * direction(self.state[parameter], parameter.grad, group))


def muon_direction(state: dict[str, Any], gradient: Tensor, group: dict[str, Any]) -> Tensor:
    """Return the orthogonal matrix nearest to Nesterov's momentum, longer where there are more rows."""
    mean = state.setdefault("mean", 0 * gradient).lerp_(gradient, 1 - group["momentum"])
    rows, cols = gradient.shape
    ahead = gradient.lerp(mean, group["momentum"]).to(autocast_dtype(gradient.device))
    return newton_schulz(ahead).type_as(gradient) * max(1, rows / cols) ** 0.5


def adam_direction(state: dict[str, Any], gradient: Tensor, group: dict[str, Any]) -> Tensor:
    """Return the mean gradient over the root of the mean square, both without their bias to zero."""
    if not state:
        state |= {"step": torch.zeros(()), "mean": 0 * gradient, "square": 0 * gradient}
    state["step"] += 1
    first, second = group["betas"]
    mean = state["mean"].lerp_(gradient, 1 - first) / (1 - first ** state["step"])
    square = state["square"].lerp_(gradient.square(), 1 - second) / (1 - second ** state["step"])
    return mean / (square.sqrt() + 1e-8)


class TokenShift(nn.Module):
    """Mix each token with the one before it.

    Channel i is moved by a learned share towards that of the token before; the first token has zeros before
    it. At the start the shares rise from 0 to 1 over the channels, so the two tokens can be told apart (RWKV,
    Peng et al. 2023, section 3.1). A key then says what came before its token, the first half of an induction
    head, which costs a layer otherwise.
    """

    def __init__(self, n_embd: int):
        check_sizes("TokenShift", 1, n_embd=n_embd)
        super().__init__()
        self.mix = nn.Parameter(torch.linspace(0, 1, n_embd))

    def forward(self, x: Float[Tensor, "B T C"], cache: Cache | None = None) -> Float[Tensor, "B T C"]:
        """Map x (B, T, n_embd) to an output of the same shape; a cache holds the tokens before x."""
        check_tokens(x, "TokenShift")
        check_width("TokenShift", x, len(self.mix))
        check_type(cache, (Cache, NoneType), "TokenShift", "cache")
        past = x
        if cache is not None:
            # it keeps tensors (B, n_head, T, ...): here the tokens are keys, with values of no channels
            past = cache.extend(self, x[:, None], x[:, None, :, :0])[0][:, 0]
        before = F.pad(past, (0, 0, 1, -1))[:, -x.shape[1] :]
        return x + self.mix * (before - x)


class ShiftedBlock(nn.Module):
    """A `Block` with a token shift ahead of its attention, and one ahead of its MLP."""

    def __init__(self, block: Block, n_embd: int):
        super().__init__()
        self.block, self.shift_1, self.shift_2 = block, TokenShift(n_embd), TokenShift(n_embd)

    def forward(
        self, x: Float[Tensor, "B T C"], is_causal: bool = True, cache: Cache | None = None
    ) -> Float[Tensor, "B T C"]:
        """Map x (B, T, n_embd) to an output of the same shape."""
        block = self.block
        y = block.attn(self.shift_1(block.ln_1(x), cache), is_causal=is_causal, cache=cache)
        x = x + block.dropout(y)
        return x + block.dropout(block.mlp(self.shift_2(block.ln_2(x), cache)))


def check_tricks(tricks: object, name: str) -> None:
    """Raise unless `tricks`, passed to the function `name`, are names from TRICKS."""
    if isinstance(tricks, str) or not isinstance(tricks, Sequence | Set | Mapping):
        raise TypeError(f"{name}: tricks is {describe(tricks)}, expected names, for example ['muon'].")
    for trick in tricks:
        look_up(trick, TRICKS, "trick")


def fast_gpt(config: GPTConfig, tricks: Collection[str]) -> GPT:
    """Return a GPT with the parts that these tricks ask for; without any, that of the rung on GPT."""
    check_type(config, GPTConfig, "fast_gpt", "config")
    check_tricks(tricks, "fast_gpt")
    attn, wpe = MultiHeadAttention, nn.Embedding
    if "rotary" in tricks:
        rotary = Rotary(head_size_of(config.n_embd, config.n_head), config.block_size)
        attn, wpe = partial(GroupedQueryAttention, n_kv_head=config.n_head, rotary=rotary), None
    model = GPT(config, attn, wpe=wpe)
    if "token_shift" in tricks:
        for layer, block in enumerate(model.transformer.h):
            model.transformer.h[layer] = ShiftedBlock(block, config.n_embd)  # pyright: ignore
    return model


def muon(model: GPT, weight_decay: float) -> Muon:
    """Return a Muon over the matrices of the blocks, with AdamW for embeddings, norms and shares."""
    hidden = [parameter for parameter in model.transformer.h.parameters() if parameter.dim() == 2]
    rest = [parameter for parameter in model.parameters() if all(parameter is not each for each in hidden)]
    faster = {"orthogonal": True, "lr_scale": MUON_LR / ADAM_LR, "weight_decay": weight_decay}
    return Muon([{"params": hidden, **faster}, {"params": rest}])


def linear_decay(recipe: Recipe, step: int) -> float:
    """Return the learning rate of a step: linear warmup, then linear decay to 0 at the recipe's last step."""
    rising = (step + 1) / max(1, recipe.warmup)
    falling = (recipe.steps - step) / max(1, recipe.steps - recipe.warmup)
    return recipe.learning_rate * min(1.0, rising, falling)


def speedrun(
    data: Corpus,
    tricks: Collection[str] = tuple(TRICKS),
    *,
    text: str = "stories",
    steps: int | None = None,
    learning_rate: float | None = None,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Trainer:
    """Return a trainer with these tricks on; without any it is that of the rung on GPT.

    Args:
        data: training and validation ids.
        tricks: names from TRICKS.
        text: whose sizes and recipe: "stories", "shakespeare", or "shakespeare-long", which takes minutes.
        steps: number of optimizer steps; the recipe's if left out.
        learning_rate: the maximum; the recipe's if left out. Matrices under Muon have 2.5 times as much.
        seed: of the parameters and the batches.
        device: of the model.
    """
    check_type(data, Corpus, "speedrun", "data")
    check_tricks(tricks, "speedrun")
    check_device(device, "speedrun")
    on = set(tricks)
    fast, base = look_up(text, FAST_CONFIGS, "text"), text.removesuffix("-long")
    sizes, changes = fast if "shape" in on else (MODEL_CONFIGS[base], {})
    if "muon" in on:
        changes = {"learning_rate": ADAM_LR} | changes
    if "schedule" in on:
        changes = {"warmup": WARMUP} | changes
    given = {"seed": seed, "steps": steps, "learning_rate": learning_rate}
    changes |= {name: value for name, value in given.items() if value is not None}
    recipe = replace(RECIPES[base], **changes)
    with torch.random.fork_rng([]):
        torch.manual_seed(recipe.seed)
        model = fast_gpt(GPTConfig(data.tokenizer.vocab_size, **sizes), on).to(device)
    optimizer = muon(model, recipe.weight_decay) if "muon" in on else None
    schedule = partial(linear_decay, recipe) if "schedule" in on else None
    return Trainer(model, data, recipe, optimizer, schedule)


def in_turns(sides: Mapping[str, Callable[[], object]], rounds: int = 5) -> dict[str, list[float]]:
    """Time functions in turns, so that what else the machine does slows all of them alike.

    Each runs once before it counts: a first call often does more.

    Returns:
        For each name the seconds of its rounds, the shortest first.
    """
    check_type(sides, Mapping, "in_turns", "sides")
    check_sizes("in_turns", 1, rounds=rounds)
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    for side in sides.values():
        side()
    for _ in range(rounds):
        for name, side in sides.items():
            start = time.perf_counter()
            side()
            seconds[name].append(time.perf_counter() - start)
    return {name: sorted(each) for name, each in seconds.items()}
