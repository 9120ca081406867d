"""The logit lens, an induction head found, and what each head of a layer writes."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.exercises.comparing import close
from attention_course.exercises.exercise import Property, exercise


def logit_lens(
    stream: Float[Tensor, "n_layer T C"], scale: Float[Tensor, " C"], W_vocab: Float[Tensor, "V C"]
) -> Float[Tensor, "n_layer T V"]:
    """Turn the residual stream after each layer into logits, with the final RMSNorm and the output matrix.

    Args:
        stream: the residual stream after each layer, shape (n_layer, T, C).
        scale: the scale of the final RMSNorm, shape (C,).
        W_vocab: the output matrix, a row for each token, shape (V, C).

    Returns:
        Logits, shape (n_layer, T, V).
    """
    mean_square = stream.square().mean(dim=-1, keepdim=True)
    normed = stream * (mean_square + 1e-5).rsqrt() * scale
    return normed @ W_vocab.T


def direct_logit_attribution(
    outputs: Float[Tensor, "n_head T head_size"],
    W_proj: Float[Tensor, "C C"],
    x: Float[Tensor, "T C"],
    scale: Float[Tensor, " C"],
    W_vocab: Float[Tensor, "V C"],
    ids: Int[Tensor, " T"],
) -> Float[Tensor, "n_head T"]:
    """Return how far each head of a layer raises a logit at each position, above the mean of all logits.

    Args:
        outputs: the outputs of the heads, shape (n_head, T, head_size).
        W_proj: the output projection as `nn.Linear` stores it, shape (C, C) with C = n_head * head_size.
        x: the residual stream after the last layer, shape (T, C).
        scale: the scale of the final RMSNorm, shape (C,).
        W_vocab: the output matrix, shape (V, C).
        ids: the token at each position whose logit is meant, shape (T,).

    Returns:
        What each head adds to the logit directly, shape (n_head, T).
    """
    columns = W_proj.unflatten(1, (len(outputs), -1)).transpose(0, 1)  # (n_head, C, head_size)
    written = outputs @ columns.transpose(-2, -1)  # (n_head, T, C)
    size = (x.square().mean(dim=-1, keepdim=True) + 1e-5).sqrt()
    logits = written / size * scale @ W_vocab.T  # (n_head, T, V)
    return logits[:, torch.arange(len(ids)), ids] - logits.mean(dim=-1)


def find_induction_head(
    weights: Float[Tensor, "n_layer n_head T T"], ids: Int[Tensor, " T"]
) -> Int[Tensor, "2"]:
    """Find the head that looks most at what followed the query's token the last time.

    Args:
        weights: the attention weights of a forward pass over `ids`, shape (n_layer, n_head, T, T).
        ids: different tokens, written twice, shape (T,).

    Returns:
        Its layer and its place in the layer, shape (2,).
    """
    half = len(ids) // 2
    queries = torch.arange(half, len(ids))  # the second copy
    keys = queries - half + 1
    scores = weights[:, :, queries, keys].mean(dim=-1)  # (n_layer, n_head)
    n_head = scores.shape[1]
    best = scores.argmax()
    return torch.stack([best // n_head, best % n_head])


def draw_recordings(generator: torch.Generator) -> list[tuple]:
    """Draw the weights of 18 heads and their ids: one induction head, and others that are taken for it.

    Six look elsewhere; two look there with less weight, in one layer; others do so in some rows only. The
    first head of all looks nowhere in particular.
    """

    def draw(n_layer, n_head, half):
        T = 2 * half
        t = torch.arange(T)
        ids = torch.randperm(50, generator=generator)[:half].repeat(2)
        weights = torch.rand(18, T, T, generator=generator).tril()
        weights[-1, half:, [0, *range(half + 1, T)]] = 0  # all of its weight lies on what followed, unsorted
        weights[-2, half:, half:] = 0  # all of its weight lies on the first half
        weights[-6, half:, 1 : half + 1] = 0  # none of its weight lies on what followed
        weights[3, -1, half] = weights[9, half, 1] = 0  # nor any of the last query's, of the first one's
        weights[0, half - 1, 0] = 0  # nor any of the query's before the second half
        if n_head == 6:  # what else the induction head has lies on the earlier token itself
            weights[0, half:] = torch.eye(T)[:half]
        weights = weights / weights.sum(dim=-1, keepdim=True)
        between = torch.randint(half + 1, T - 1, (1,), generator=generator)
        planted = {  # the distance that a head looks back, the share of its weight there, and its rows
            0: (half - 1, 0.8 if n_head == 6 else 0.85, t[half:]),  # the induction head
            1: (half, 0.95, t),
            2: (half + 1, 0.95, t),
            3: (half - 1, 0.95, t[half:-1]),
            4: (1, 0.8, t),
            5: (half - 1, 0.98, t[half : half + 1]),
            6: (half - 1, 0.63, t),
            7: (half - 1, 0.66, t),
            8: (0, 0.8, t),
            9: (half - 1, 0.95, t[half + 1 :]),
            10: (half - 1, 1.0, between),
            11: (T, 0.8, t),
            13: (half - 1, 0.98, t[-1:]),
            14: (half - 2, 0.8, t),
        }
        for head, (distance, share, rows) in planted.items():
            weights[head, rows] *= 1 - share
            weights[head, rows, (rows - distance).clamp(min=0)] += share
        weights[7, half - 1] = t == 0  # by one query more it would win
        weights = weights.view(n_layer, n_head, T, T)
        while True:
            layers = torch.randperm(n_layer, generator=generator)
            heads = torch.randperm(n_head, generator=generator)
            aimless = layers[0] * n_head + heads[0] == 15
            if aimless and layers.argmin() != heads.argmin():  # so that (layer, head) is not (head, layer)
                return weights[layers][:, heads], ids

    drawn = [draw(*sizes) for sizes in ((3, 6, 4), (6, 3, 5), (3, 6, 5), (6, 3, 4))]
    return [*drawn, draw_close_heads(generator), draw(1, 18, 4)]


def draw_close_heads(generator: torch.Generator) -> tuple:
    """Draw the weights of six heads, four of which look at what followed with nearly the same mean.

    The smallest weight ranks another one first than the mean does; so do means of logarithms, and of squares.
    """
    half, T = 5, 10
    shares = torch.full((6, half), 0.3)
    shares[0] = torch.tensor([0.95, 0.95, 0.95, 0.95, 0.6])  # mean 0.88
    shares[1] = torch.tensor([0.88, 0.88, 0.88, 0.88, 0.83])  # mean 0.87
    shares[2] = torch.tensor([1.0, 1.0, 1.0, 1.0, 0.3])  # mean 0.86
    shares[3] = 0.85
    shares = shares[:, torch.randperm(half, generator=generator)]
    t = torch.arange(half, T)
    weights = torch.rand(6, T, T, generator=generator).tril()
    weights[:, t, t - half + 1] = 0
    weights = weights / weights.sum(dim=-1, keepdim=True)
    weights[:, half:] *= 1 - shares[..., None]
    weights[:, t, t - half + 1] = shares
    ids = torch.randperm(50, generator=generator)[:half].repeat(2)
    return weights[torch.randperm(6, generator=generator)].view(2, 3, T, T), ids


def layers_reversed(find, weights, ids):
    """Reverse the order of the layers."""
    layer, head = find(weights, ids)
    return find(weights.flip(0), ids).tolist() == [len(weights) - 1 - layer, head]


OF_A_SEARCH = (
    Property("With the layers in reverse, it is the same head.", layers_reversed),
    Property(
        "The ids themselves do not matter, only where they repeat.",
        lambda f, weights, ids: torch.equal(f(weights, ids), f(weights, 99 - ids)),
    ),
)


def draw_streams(generator: torch.Generator) -> list[tuple]:
    """Draw the stream of a few layers: small integers, one token of zeros, and a layer of tiny numbers."""
    drawn = []
    for n_layer, T, C, V in ((2, 3, 4, 5), (3, 2, 5, 7), (4, 5, 3, 6), (3, 4, 6, 4)):
        stream = torch.randint(-3, 4, (n_layer, T, C), generator=generator).float()
        stream = stream + torch.arange(1, n_layer + 1)[:, None, None]  # with a mean, and growing
        scale = torch.randint(1, 5, (C,), generator=generator) / 2 + 0.25
        drawn.append((stream, scale, torch.randint(-3, 4, (V, C), generator=generator).float()))
    drawn[2][0][1, 2] = 0
    drawn[3][0][2] *= 1e-3
    return drawn


def draw_layers(generator: torch.Generator) -> list[tuple]:
    """Draw the heads of one layer, the last state of the stream, and ids, all sizes different.

    In one, the stream is so short that the 1e-5 counts. In the last, tokens occur more than once.
    """
    drawn = []
    sizes = (2, 4, 3, 7), (3, 5, 2, 8), (4, 3, 2, 9), (2, 5, 4, 6), (5, 5, 2, 7), (2, 7, 3, 4)
    for n_head, T, head_size, V in sizes:
        C = n_head * head_size
        outputs = torch.randn(n_head, T, head_size, generator=generator)
        W_proj = torch.randn(C, C, generator=generator)
        x = 3 * torch.randn(T, C, generator=generator) * torch.arange(1, T + 1)[:, None]
        scale = torch.rand(C, generator=generator) + 0.5
        W_vocab = torch.randn(V, C, generator=generator) + 0.5
        ids = torch.randperm(V, generator=generator).repeat(2)[:T]
        drawn.append((outputs, W_proj, x, scale, W_vocab, ids))
    drawn[4][2].mul_(1e-3)
    return drawn


def heads_add_up(attribute, outputs, W_proj, x, scale, W_vocab, ids):
    """Compare the sum over the heads with a layer whose one head is all of them side by side."""
    merged = outputs.transpose(0, 1).flatten(1)[None]
    return close(
        attribute(merged, W_proj, x, scale, W_vocab, ids)[0],
        attribute(outputs, W_proj, x, scale, W_vocab, ids).sum(dim=0),
    )


OF_A_LENS = (
    Property(
        "The logits of a token do not depend on the other tokens, nor on the other layers.",
        lambda f, stream, scale, W_vocab: close(
            f(stream[-1:, -1:], scale, W_vocab), f(stream, scale, W_vocab)[-1:, -1:]
        ),
    ),
)
OF_ATTRIBUTION = (
    Property("What all heads write together is the sum of what each one writes.", heads_add_up),
    Property(
        "Raise all logits of a token alike, and the result stays the same.",
        lambda f, outputs, W_proj, x, scale, W_vocab, ids: close(
            f(outputs, W_proj, x, scale, W_vocab + 1, ids), f(outputs, W_proj, x, scale, W_vocab, ids)
        ),
    ),
)

EXERCISES = (
    exercise(__name__, logit_lens, draw_streams, OF_A_LENS),
    exercise(__name__, find_induction_head, draw_recordings, OF_A_SEARCH),
    exercise(__name__, direct_logit_attribution, draw_layers, OF_ATTRIBUTION),
)
