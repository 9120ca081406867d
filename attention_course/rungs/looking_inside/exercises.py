"""An induction head found."""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from attention_course.exercises.exercise import Property, exercise


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
        weights = weights / weights.sum(dim=-1, keepdim=True)
        between = torch.randint(half + 1, T - 1, (1,), generator=generator)
        planted = {  # the distance that a head looks back, the share of its weight there, and its rows
            0: (half - 1, 0.85, t[half:]),  # the induction head
            1: (half, 0.8, t),
            2: (half + 1, 0.8, t),
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

    return [draw(*sizes) for sizes in ((3, 6, 4), (6, 3, 5), (3, 6, 5), (6, 3, 4))]


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

EXERCISES = (exercise(__name__, find_induction_head, draw_recordings, OF_A_SEARCH),)
