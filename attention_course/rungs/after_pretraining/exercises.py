"""A loss of answers alone, LoRA's product, rewards compared within a group, a divergence at each token."""

from collections.abc import Callable

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor

from attention_course.exercises.comparing import close, differentiable, gradients
from attention_course.exercises.exercise import Property, exercise


def masked_loss(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"], is_answer: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the targets that belong to answers; the prompt is left out.

    Args:
        logits: the logits of the next token, shape (B, T, V).
        targets: the next token itself, shape (B, T).
        is_answer: whether a target belongs to an answer, shape (B, T); at least one does.

    Returns:
        One number, shape ().
    """
    losses = F.cross_entropy(logits.transpose(1, 2), targets, reduction="none")  # (B, T)
    return (losses * is_answer).sum() / is_answer.sum()


def lora(
    x: Float[Tensor, "*B n_in"],
    W: Float[Tensor, "n_out n_in"],
    A: Float[Tensor, "rank n_in"],
    B: Float[Tensor, "n_out rank"],
    alpha: int | float,
) -> Float[Tensor, "*B n_out"]:
    """Apply a linear layer that stays as it is, plus a product of two thin matrices (Hu et al. 2021).

    Args:
        x: shape (..., n_in).
        W: the pretrained matrix, as `nn.Linear` stores it, shape (n_out, n_in); it gets no gradient.
        A: shape (rank, n_in).
        B: shape (n_out, rank).
        alpha: the product is scaled by alpha / rank.

    Returns:
        Shape (..., n_out).
    """
    rank = len(A)
    update = x @ A.T @ B.T  # (..., n_out)
    return x @ W.detach().T + alpha / rank * update


def group_advantage(rewards: Float[Tensor, "N G"]) -> Float[Tensor, "N G"]:
    """Compare each reward with those of its group: minus their mean, divided by their deviation.

    GRPO (Shao et al. 2024, section 4.1).

    Args:
        rewards: of G answers to each of N questions, shape (N, G), with G at least 2.

    Returns:
        The advantages, shape (N, G).
    """
    mean = rewards.mean(dim=1, keepdim=True)
    deviation = rewards.std(dim=1, keepdim=True)
    return (rewards - mean) / (deviation + 1e-4)


def kl_per_token(logits: Float[Tensor, "B T V"], reference: Float[Tensor, "B T V"]) -> Float[Tensor, "B T"]:
    """Return the Kullback-Leibler divergence of a model from its reference, in nats, at each position.

    Args:
        logits: of the model, shape (B, T, V).
        reference: logits of the model that it started from, shape (B, T, V).

    Returns:
        Shape (B, T), at least 0.
    """
    log_p = logits.log_softmax(dim=-1)
    log_q = reference.log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


# Inputs


def draw_answers(generator: torch.Generator) -> list[tuple]:
    """Draw logits, targets, and where the answers are: prompt, answer, padding.

    T == V, long and short answers, a text without prompt or padding, and one whose prompt fills it. In one, a
    token of an answer is certain, so its loss is exactly 0, and another one is token 0. In the last, a token
    of an answer is hopeless, and one text has two answers.
    """

    def draw(V, T, *parts):
        logits = 2 * torch.randn(len(parts), T, V, generator=generator)
        targets = torch.randint(V, (len(parts), T), generator=generator)
        t = torch.arange(T)
        return logits, targets, torch.stack([(t >= start) & (t < stop) for start, stop in parts])

    drawn = [
        draw(4, 3, (1, 3)),
        draw(3, 3, (1, 2), (0, 2)),
        draw(5, 4, (3, 4), (1, 4)),
        draw(4, 5, (1, 5), (3, 4), (2, 4)),
        draw(6, 5, (2, 5), (5, 5)),
        draw(7, 4, (0, 4), (1, 3)),
        draw(5, 6, (2, 6), (4, 5)),
    ]
    logits, targets, _ = drawn[-1]
    targets[0, 4] = 0
    logits[0, 3, targets[0, 3]] = 1000.0
    logits, targets, is_answer = draw(5, 7, (1, 6), (2, 4))
    logits[0, 1, targets[0, 1]] = -300.0
    is_answer[0, 3] = False
    return [*drawn, (logits, targets, is_answer)]


def draw_layers(generator: torch.Generator) -> list[tuple]:
    """Draw the input of a layer, its three matrices, and alpha: integer or not, above the rank or below.

    One layer has as many outputs as inputs, and one as many as its rank, too; x has one to four dimensions.
    """

    def draw(shape, n_out, rank, alpha):
        n_in = shape[-1]
        sizes = (shape, (n_out, n_in), (rank, n_in), (n_out, rank))
        return (*(torch.randn(*size, generator=generator) for size in sizes), alpha)

    return [
        draw((3,), 2, 2, 4),
        draw((2, 4), 3, 2, 3.0),
        draw((3, 4), 4, 2, 5),
        draw((2, 3), 3, 3, 5),
        draw((2, 2, 5), 4, 3, 16.0),
        draw((2, 1, 3, 6), 5, 4, 3),
        draw((2, 3), 4, 1, 0.5),
    ]


def draw_rewards(generator: torch.Generator) -> list[tuple]:
    """Draw rewards of groups: N == G, equal ones, right and wrong, and some on other scales.

    In one group the deviation is about 0.001, beside which 1e-4 shows. In the last, one answer of 32 is
    right, or wrong: its advantage is above 5, or below -5.
    """

    def draw(N, G, scale=1.0):
        return scale * torch.randn(N, G, generator=generator)

    flips = torch.randint(2, (3, 8), generator=generator).float()
    flips[:, 0], flips[:, 1:3] = 1, 0  # so that right and wrong answers are in each
    one_in_four = torch.eye(4)[torch.randint(4, (2,), generator=generator)]
    some_equal = draw(3, 4)
    some_equal[0], some_equal[2] = 1, 0
    one_in_32 = torch.eye(32)[torch.randint(32, (2,), generator=generator)]
    one_in_32[1] = 1 - one_in_32[1]
    scales = torch.tensor([[0.001], [1.0], [10.0]])
    return [
        (draw(2, 3),),
        (draw(3, 3),),
        (one_in_four,),
        (some_equal,),
        (flips,),
        (draw(3, 6) * scales + 5 * scales,),
        (draw(4, 2),),
        (one_in_32,),
    ]


def draw_two_models(generator: torch.Generator) -> list[tuple]:
    """Draw the logits of a model and of its reference: T == V, equal ones, some that move, certain ones.

    In the last three, a token's probability is 0 as a float: under the model, under the reference, and under
    both, where another one's is much smaller under the reference.
    """

    def draw(B, T, V):
        logits = torch.randn(B, T, V, generator=generator) + 3 * torch.rand(B, T, 1, generator=generator)
        return logits, logits + torch.randn(B, T, V, generator=generator) - 1

    same, _ = draw(1, 2, 4)
    drawn = [draw(1, 1, 3), draw(1, 2, 3), draw(2, 3, 3), draw(2, 3, 5), draw(3, 2, 4), (same, same + 2)]
    for side in (0, 1):
        pair = draw(2, 3, 4)
        pair[side][:, 1, 2] -= 200
        drawn.append(pair)
    logits, reference = draw(2, 13, 4)
    logits[..., 2] -= 200
    reference[..., 2] -= 200
    reference[..., 1] -= 1200
    return [*drawn, (logits, reference)]


# Properties


def prompts_do_not_matter(loss, logits, targets, is_answer):
    """Write other logits where the prompt is."""
    others = torch.where(is_answer[..., None], logits, logits.flip(-1) + 1)
    return close(loss(logits, targets, is_answer), loss(others, targets, is_answer))


def one_by_one(loss, logits, targets, is_answer):
    """Compare with the texts one by one, each weighted by the tokens of its answer."""
    ones = [i for i in range(len(logits)) if is_answer[i].any()]
    parts = [loss(*(each[i : i + 1] for each in (logits, targets, is_answer))) for i in ones]
    counts = is_answer.sum(dim=1)[ones]
    return close(loss(logits, targets, is_answer), (torch.stack(parts) * counts).sum() / counts.sum())


def gradient_of(place: int, answer: Callable, arguments: tuple) -> Tensor | None:
    """Return the gradient that an argument of `lora` gets; None if no argument gets any."""
    try:
        return gradients(answer, arguments)[place]
    except RuntimeError:
        return None


def matrix_left_alone(layer, *arguments):
    """Give a W that was computed: it cannot be frozen in place."""
    x, W, A, B, alpha = arguments
    return layer(x, W.clone().requires_grad_() * 1, A, B, alpha) is not None


def matrix_is_frozen(layer, *arguments):
    """Ask for the gradient of W."""
    found = gradient_of(1, layer, arguments)
    return found is None or not found.any()


def matrix_passes_gradients_on(layer, *arguments):
    """Ask for the gradient of x, unless there is none at all or it is that of the product alone."""
    x, W, A, B, alpha = arguments
    found = gradient_of(0, layer, arguments)
    alone = gradient_of(0, lora, (x, 0 * W, A, B, alpha))
    assert alone is not None
    return found is None or not close(alone, found)


def gradients_of_the_model(divergence, logits, reference):
    """Compare the gradient of the logits. Whether the reference gets one does not matter."""
    fixed = lambda f: lambda logits: f(logits, reference)  # noqa: E731
    return differentiable(fixed(kl_per_token)).holds(fixed(divergence), logits)


OF_A_LOSS = (
    Property("The logits of the prompt do not matter.", prompts_do_not_matter),
    Property("Each token of an answer counts as much as any other, in whichever text it is.", one_by_one),
    differentiable(masked_loss),
)
OF_A_LAYER = (
    Property(
        "With B = 0, as LoRA begins, the layer is what it was.",
        lambda f, x, W, A, B, alpha: close(x @ W.T, f(x, W, A, 0 * B, alpha)),
    ),
    Property("W itself is left alone.", matrix_left_alone, "W_frozen_in_place"),
    Property("W gets no gradient.", matrix_is_frozen, "W_trained"),
    Property("x gets a gradient through W.", matrix_passes_gradients_on, "x_cut_off"),
    differentiable(lora),
)
OF_ADVANTAGES = (
    Property(
        "Add 3 to all rewards of a group, and the result stays the same.",
        lambda f, rewards: close(f(rewards), f(rewards + 3)),
    ),
    Property("A group gets the same result alone.", lambda f, rewards: close(f(rewards)[:1], f(rewards[:1]))),
    Property(
        "A group whose rewards are all equal gets 0.",
        lambda f, rewards: close(torch.zeros_like(rewards), f(torch.ones_like(rewards))),
    ),
)
OF_A_DIVERGENCE = (
    Property(
        "The divergence of a model from itself is 0.",
        lambda f, logits, _: close(torch.zeros(logits.shape[:-1]), f(logits, logits)),
    ),
    Property(
        "Add 5 to all logits of one model, and the result stays the same.",
        lambda f, logits, reference: close(f(logits, reference), f(logits, reference + 5)),
    ),
    Property(
        "A position gets the same result alone.",
        lambda f, logits, reference: close(f(logits, reference)[:, :1], f(logits[:, :1], reference[:, :1])),
    ),
    Property(
        "The gradient of the logits is the divergence's own: nothing was detached or became NaN on the way.",
        gradients_of_the_model,
        "detached",
    ),
)

EXERCISES = (
    exercise(__name__, masked_loss, draw_answers, OF_A_LOSS),
    exercise(__name__, lora, draw_layers, OF_A_LAYER),
    exercise(__name__, group_advantage, draw_rewards, OF_ADVANTAGES),
    exercise(__name__, kl_per_token, draw_two_models, OF_A_DIVERGENCE),
)
