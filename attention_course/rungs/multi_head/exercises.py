"""Split channels into heads, merge them, multi-head attention, and fused matrices."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attention_course.attention import causal_mask
from attention_course.exercises.comparing import close, differentiable
from attention_course.exercises.exercise import Property, exercise


def split_heads(x: Float[Tensor, "B T C"], n_head: int) -> Float[Tensor, "B n_head T head_size"]:
    """Give each head its own channels: head 0 the first head_size of them, head 1 the next, and so on.

    Args:
        x: shape (B, T, C).
        n_head: divides C.

    Returns:
        Shape (B, n_head, T, C / n_head).
    """
    B, T, C = x.shape
    heads = x.view(B, T, n_head, C // n_head)
    return heads.transpose(1, 2)


def merge_heads(heads: Float[Tensor, "B n_head T head_size"]) -> Float[Tensor, "B T C"]:
    """Concatenate the channels of all heads, those of head 0 first.

    Args:
        heads: shape (B, n_head, T, head_size).

    Returns:
        Shape (B, T, n_head * head_size).
    """
    B, n_head, T, head_size = heads.shape
    tokens = heads.transpose(1, 2)
    return tokens.reshape(B, T, n_head * head_size)


def multi_head_forward(
    x: Float[Tensor, "B T C"],
    W_qkv: Float[Tensor, "C3 C"],
    W_proj: Float[Tensor, "C C"],
    n_head: int,
    mask: Bool[Tensor, "T T"],
) -> Float[Tensor, "B T C"]:
    """Compute multi-head attention with fused query, key and value matrices.

    Args:
        x: tokens, shape (B, T, C).
        W_qkv: as in nn.Linear, shape (3C, C): rows for queries, then keys, then values.
        W_proj: the output projection, as in nn.Linear, shape (C, C).
        n_head: divides C.
        mask: True where a query may look, shape (T, T).

    Returns:
        The output, shape (B, T, C). A query that may look at nothing gets zeros.
    """
    B, T, C = x.shape
    head_size = C // n_head
    parts = (x @ W_qkv.T).split(C, dim=-1)
    q, k, v = (part.view(B, T, n_head, head_size).transpose(1, 2) for part in parts)
    scores = q @ k.transpose(-2, -1) * head_size**-0.5
    scores = scores.masked_fill(~mask, float("-inf"))
    weights = torch.softmax(scores, dim=-1).masked_fill(~mask, 0.0)
    out = (weights @ v).transpose(1, 2).reshape(B, T, C)
    return out @ W_proj.T


def fuse_heads(
    W_q: Float[Tensor, "n_head head_size C"],
    W_k: Float[Tensor, "n_head head_size C"],
    W_v: Float[Tensor, "n_head head_size C"],
) -> Float[Tensor, "C3 C"]:
    """Stack the matrices of all heads: all queries, then all keys, then all values.

    Args:
        W_q: the query matrix of each head, as in nn.Linear, shape (n_head, head_size, C).
        W_k: the key matrices, same shape.
        W_v: the value matrices, same shape.

    Returns:
        The fused matrix, shape (3C, C), where C = n_head * head_size.
    """
    parts = (W_q, W_k, W_v)
    return torch.cat([part.flatten(0, 1) for part in parts])


# Inputs


def randint(generator, *shape):
    """Draw small integers, as floats."""
    return torch.randint(-9, 10, shape, generator=generator).float()


def draw_unsplit(generator: torch.Generator) -> list[tuple]:
    """Draw tokens and n_head: 1, C, T == n_head, n_head == head_size, all sizes different, large values."""
    sizes = [(1, 1, 2, 2), (1, 2, 4, 2), (1, 3, 6, 3), (2, 2, 4, 1), (2, 3, 4, 4), (1, 4, 6, 2), (2, 5, 6, 3)]
    drawn = [(randint(generator, B, T, C), n_head) for B, T, C, n_head in sizes]
    return [*drawn, (1e4 * torch.randn(3, 7, 10, generator=generator), 5)]


def draw_split(generator: torch.Generator) -> list[tuple]:
    """Draw heads: one of them, one token, one channel, n_head == T == head_size, all sizes different."""
    shapes = [
        (1, 2, 1, 2),
        (1, 2, 2, 1),
        (1, 2, 2, 2),
        (1, 2, 3, 2),
        (2, 1, 3, 4),
        (2, 3, 2, 2),
        (2, 3, 5, 4),
    ]
    drawn = [(randint(generator, *shape),) for shape in shapes]
    return [*drawn, (1e4 * torch.randn(3, 5, 7, 2, generator=generator),)]


def draw_attention(generator: torch.Generator) -> list[tuple]:
    """Draw tokens, both matrices, n_head and a mask: one token, one head, T == n_head, causal and random.

    One mask hides nothing, and one hides all keys of two queries. In the last input, scores lie below -10,000
    or above 10,000, and no two of a row are equal.
    """

    def draw(B, T, C, n_head, mask):
        shapes = (B, T, C), (3 * C, C), (C, C)
        return *(torch.randn(shape, generator=generator) for shape in shapes), n_head, mask

    sizes = [(1, 1, 2, 2), (1, 2, 2, 1), (1, 2, 2, 2), (1, 3, 4, 2), (2, 3, 6, 3), (2, 5, 6, 2), (3, 4, 8, 4)]
    drawn = [draw(B, T, C, n_head, causal_mask(T)) for B, T, C, n_head in sizes]
    anywhere = (torch.rand(6, 6, generator=generator) < 0.5) | torch.eye(6, dtype=torch.bool)
    row = torch.randint(6, (1,), generator=generator)
    blind = anywhere.index_fill(0, torch.cat([row, (row + 2) % 6]), False)
    drawn += [draw(2, 6, 6, 3, mask) for mask in (anywhere, anywhere | True, blind)]
    keys = 10.0 + torch.randperm(4, generator=generator)
    x = torch.stack([torch.tensor([1.0, -1.0, 1.0, -1.0]), keys], dim=1)[None]
    W_qkv = torch.tensor([[1100.0, 0], [-1100.0, 0], [0, 1], [0, 1], [1, 0], [0, 1]])
    W_proj = torch.randn(2, 2, generator=generator)
    return [*drawn, (x, W_qkv, W_proj, 2, causal_mask(4))]


def draw_weights(generator: torch.Generator) -> list[tuple]:
    """Draw matrices: 1 head, heads of 1 channel, n_head == head_size, and other sizes."""
    shapes = [(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (4, 2)]
    return [
        tuple(randint(generator, n_head, head_size, n_head * head_size) for _ in range(3))
        for n_head, head_size in shapes
    ]


# Properties


def last_tokens_changed(x):
    """Return x with another last token."""
    return torch.cat([x[:, :-1], -x[:, -1:] - 1], dim=1)


def a_head_has_neighbouring_channels(split, x, n_head):
    """Compare each head with a slice of the channels."""
    size = x.shape[-1] // n_head
    heads = split(x, n_head)
    return all(close(x[..., h * size : (h + 1) * size], heads[:, h]) for h in range(n_head))


def a_token_stays_at_its_place(split, x, n_head):
    """Change the last token, and compare all heads at all other positions."""
    return close(split(x, n_head)[:, :, :-1], split(last_tokens_changed(x), n_head)[:, :, :-1])


def nothing_moves_up(forward, x, W_qkv, W_proj, n_head, mask):
    """Change the last token under a causal mask, and compare all earlier outputs."""
    causal = causal_mask(x.shape[1])
    before, after = (forward(y, W_qkv, W_proj, n_head, causal) for y in (x, last_tokens_changed(x)))
    return close(before[:, :-1], after[:, :-1])


def projection_comes_last(forward, x, W_qkv, W_proj, n_head, mask):
    """Double the projection, and compare with twice the output."""
    return close(2 * forward(x, W_qkv, W_proj, n_head, mask), forward(x, W_qkv, 2 * W_proj, n_head, mask))


def zeros_for_the_blind(forward, x, W_qkv, W_proj, n_head, mask):
    """Hide all tokens from the first query, and compare the other outputs with those without a mask."""
    free = torch.ones_like(mask)
    blind = free.index_fill(0, torch.tensor([0]), False)
    free, blind = (forward(x, W_qkv, W_proj, n_head, each) for each in (free, blind))
    return not blind[:, 0].any() and close(free[:, 1:], blind[:, 1:])


def texts_apart(forward, x, W_qkv, W_proj, n_head, mask):
    """Compare the first sequence of the batch with the same sequence alone."""
    return close(forward(x[:1], W_qkv, W_proj, n_head, mask), forward(x, W_qkv, W_proj, n_head, mask)[:1])


def one_product_for_all(fuse, W_q, W_k, W_v):
    """Compare x @ fused with what each head computes alone, for weights that are no whole numbers."""
    W_q, W_k, W_v = W_q / 3, W_k / 3, W_v / 3
    x = W_v.flatten(0, 1)  # any tokens of C channels
    queries, keys, values = (x @ fuse(W_q, W_k, W_v).T).chunk(3, dim=-1)
    return all(
        close(torch.cat([x @ head.T for head in part], dim=-1), found, tolerance=1e-5)
        for part, found in ((W_q, queries), (W_k, keys), (W_v, values))
    )


def place_heads(heads, step):
    """Write head h, shape (head_size, ...), to the rows from h * step on, overwriting what is there."""
    out = heads.new_zeros(heads.shape[0] * heads.shape[1], *heads.shape[2:])
    for h, head in enumerate(heads):
        room = out[h * step : h * step + len(head)]
        room.copy_(head[: len(room)])
    return out


OF_A_SPLIT = (
    Property("Head h holds head_size neighbouring channels.", a_head_has_neighbouring_channels),
    Property("A change of the last token shows only at the last position.", a_token_stays_at_its_place),
    Property(
        "No number is lost: the same ones come out, in another order.",
        lambda split, x, n_head: close(x.flatten().sort()[0], split(x, n_head).flatten().sort()[0]),
    ),
    differentiable(split_heads),
)
OF_A_MERGE = (
    Property(
        "Splitting the result gives the heads back.",
        lambda merge, heads: close(heads, split_heads(merge(heads), heads.shape[1])),
    ),
    Property(
        "A change at the last position shows only in the last row.",
        lambda merge, heads: close(
            merge(heads)[:, :-1],
            merge(torch.cat([heads[:, :, :-1], -heads[:, :, -1:] - 1], dim=2))[:, :-1],
        ),
    ),
    differentiable(merge_heads),
)
OF_MULTI_HEAD_ATTENTION = (
    Property("Under a causal mask, a change of the last token moves no earlier output.", nothing_moves_up),
    Property("Twice the projection gives twice the output.", projection_comes_last),
    Property("A text gives the same result alone as in a batch.", texts_apart),
    Property("A query that may look at nothing gets zeros.", zeros_for_the_blind),
    differentiable(multi_head_forward),
)
OF_FUSED_HEADS = (Property("One product gives the q, k and v of every head.", one_product_for_all),)

EXERCISES = (
    exercise(__name__, split_heads, draw_unsplit, OF_A_SPLIT),
    exercise(__name__, merge_heads, draw_split, OF_A_MERGE),
    exercise(__name__, multi_head_forward, draw_attention, OF_MULTI_HEAD_ATTENTION),
    exercise(__name__, fuse_heads, draw_weights, OF_FUSED_HEADS),
)
