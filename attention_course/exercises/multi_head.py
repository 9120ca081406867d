"""Rung 7: split channels into heads, merge them, the whole of multi-head attention, and fused matrices."""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from attention_course.attention import attention, causal_mask
from attention_course.exercises.engine import Exercise, Mistake, Property, close, trained_through
from attention_course.exercises.query_key_value import sees_nothing


def split_heads(x: Float[Tensor, "B T C"], n_head: int) -> Float[Tensor, "B n_head T head_size"]:
    """Give each head its own channels: head 0 the first head_size of them, head 1 the next, and so on.

    Args:
        x: shape (B, T, C).
        n_head: divides C.

    Returns:
        Shape (B, n_head, T, C / n_head).
    """
    B, T, C = x.shape
    return x.view(B, T, n_head, C // n_head).transpose(1, 2)


def merge_heads(heads: Float[Tensor, "B n_head T head_size"]) -> Float[Tensor, "B T C"]:
    """Put the channels of all heads side by side again, those of head 0 first.

    Args:
        heads: shape (B, n_head, T, head_size).

    Returns:
        Shape (B, T, n_head * head_size).
    """
    B, n_head, T, head_size = heads.shape
    return heads.transpose(1, 2).reshape(B, T, n_head * head_size)


def multi_head_forward(
    x: Float[Tensor, "B T C"],
    W_qkv: Float[Tensor, "C3 C"],
    W_proj: Float[Tensor, "C C"],
    n_head: int,
    mask: Bool[Tensor, "T T"],
) -> Float[Tensor, "B T C"]:
    """Let n_head heads look, each with its own channels, and mix what they found.

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
    q, k, v = (part.view(B, T, n_head, head_size).transpose(1, 2) for part in (x @ W_qkv.T).split(C, dim=-1))
    scores = q @ k.transpose(-2, -1) * head_size**-0.5
    weights = torch.softmax(scores.masked_fill(~mask, float("-inf")), dim=-1).masked_fill(~mask, 0.0)
    return (weights @ v).transpose(1, 2).reshape(B, T, C) @ W_proj.T


def fuse_heads(
    W_q: Float[Tensor, "n_head head_size C"],
    W_k: Float[Tensor, "n_head head_size C"],
    W_v: Float[Tensor, "n_head head_size C"],
) -> Float[Tensor, "C3 C"]:
    """Stack the matrices of all heads: all queries, then all keys, then all values.

    Args:
        W_q: the query matrix of each head as in nn.Linear, shape (n_head, head_size, C).
        W_k: those of the keys, same shape.
        W_v: those of the values, same shape.

    Returns:
        One matrix for all, shape (3C, C), where C = n_head * head_size.
    """
    return torch.cat([part.flatten(0, 1) for part in (W_q, W_k, W_v)])


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
    """Draw tokens, both weights, n_head and a mask: one token, one head, T == n_head, causal and random.

    In the last, scores lie far apart: rows of up to 260, and of down to -260.
    """
    sizes = [(1, 1, 2, 2), (1, 2, 2, 1), (1, 2, 2, 2), (1, 3, 4, 2), (2, 3, 6, 3), (2, 5, 6, 2), (3, 4, 8, 4)]
    drawn = []
    for B, T, C, n_head in sizes:
        x, W_qkv, W_proj = (
            torch.randn(shape, generator=generator) for shape in ((B, T, C), (3 * C, C), (C, C))
        )
        drawn.append((x, W_qkv, W_proj, n_head, causal_mask(T)))
    B, T, C, n_head = 2, 6, 6, 3
    x, W_qkv, W_proj = (torch.randn(shape, generator=generator) for shape in ((B, T, C), (3 * C, C), (C, C)))
    anywhere = (torch.rand(T, T, generator=generator) < 0.5) | torch.eye(T, dtype=torch.bool)
    drawn += [(x, W_qkv, W_proj, n_head, anywhere), (x, W_qkv, W_proj, n_head, anywhere | True)]
    keys = torch.randint(10, 14, (4,), generator=generator).float()
    x = torch.stack([torch.tensor([1.0, -1.0, 1.0, -1.0]), keys], dim=1)[None]
    W_qkv = torch.tensor([[20.0, 0], [-20.0, 0], [0, 1], [0, 1], [1, 0], [0, 1]])
    return [*drawn, (x, W_qkv, W_proj[:2, :2], 2, causal_mask(4))]


def draw_weights(generator: torch.Generator) -> list[tuple]:
    """Draw the weights of 1 head, of heads with 1 channel, of as many heads as channels, and of others."""
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
    """Under a causal mask, change the last token, and compare all earlier outputs."""
    causal = causal_mask(x.shape[1])
    other = torch.cat([x[:, :-1], x[:, -1:] + 1], dim=1)
    before, after = (forward(each, W_qkv, W_proj, n_head, causal) for each in (x, other))
    return close(before[:, :-1], after[:, :-1])


def projection_comes_last(forward, x, W_qkv, W_proj, n_head, mask):
    """Double the projection, and compare with twice the output."""
    return close(2 * forward(x, W_qkv, W_proj, n_head, mask), forward(x, W_qkv, 2 * W_proj, n_head, mask))


def free_and_blind_first(forward, x, W_qkv, W_proj, n_head):
    """Hide nothing; then hide all tokens from the first query. Return both outputs."""
    free = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool)
    blind_first = free.clone()
    blind_first[0] = False
    return [forward(x, W_qkv, W_proj, n_head, mask) for mask in (free, blind_first)]


def no_nan_for_the_blind(forward, x, W_qkv, W_proj, n_head, mask):
    """Say whether a query that may look at nothing gets anything but NaN, even an error."""
    _, out = free_and_blind_first(forward, x, W_qkv, W_proj, n_head)
    return out is None or not out[:, 0].isnan().any()


def zeros_for_the_blind(forward, x, W_qkv, W_proj, n_head, mask):
    """Say whether it gets zeros, and the other queries what they get if nothing is hidden."""
    free, out = free_and_blind_first(forward, x, W_qkv, W_proj, n_head)
    return not out[:, 0].any() and close(free[:, 1:], out[:, 1:])


def texts_apart(forward, x, W_qkv, W_proj, n_head, mask):
    """Compare the first text of the batch with itself alone."""
    return close(forward(x[:1], W_qkv, W_proj, n_head, mask), forward(x, W_qkv, W_proj, n_head, mask)[:1])


def one_product_for_all(fuse, W_q, W_k, W_v):
    """Compare x @ fused with what each head computes alone."""
    x = W_v.flatten(0, 1)  # any tokens with C channels will do
    queries, keys, values = (x @ fuse(W_q, W_k, W_v).T).chunk(3, dim=-1)
    return all(
        close(torch.cat([x @ head.T for head in part], dim=-1), found)
        for part, found in ((W_q, queries), (W_k, keys), (W_v, values))
    )


# Mistakes


def scattered(x, n_head):
    """Give head 0 the channels 0, n_head, 2 n_head, ..."""
    B, T, C = x.shape
    return x.view(B, T, C // n_head, n_head).permute(0, 3, 1, 2)


def forward_with(
    split=split_heads,
    merge=merge_heads,
    order=(0, 1, 2),
    scale=lambda C, head_size, T: head_size**-0.5,
    hide=lambda mask: ~mask,
    dim=-1,
    project=lambda out, W_proj: out @ W_proj.T,
    no_nan=False,
):
    """Make a multi-head attention in which one step is another."""

    def forward(x, W_qkv, W_proj, n_head, mask):
        C = x.shape[-1]
        parts = (x @ W_qkv.T).split(C, dim=-1)
        q, k, v = (split(parts[i], n_head) for i in order)
        scores = q @ k.transpose(-2, -1) * scale(C, C // n_head, x.shape[1])
        weights = torch.softmax(scores.masked_fill(hide(mask), float("-inf")), dim=dim)
        if no_nan:
            weights = weights.nan_to_num(0)
        return project(merge(weights @ v), W_proj)

    return forward


def masked_after(x, W_qkv, W_proj, n_head, mask):
    """Multiply the weights by the mask."""
    q, k, v = (split_heads(part, n_head) for part in (x @ W_qkv.T).chunk(3, dim=-1))
    _, weights = attention(q, k, v)
    return merge_heads((weights * mask) @ v) @ W_proj.T


def one_head(x, W_qkv, W_proj, n_head, mask):
    """Leave the channels in one piece."""
    return multi_head_forward(x, W_qkv, W_proj, 1, mask)


def sums_heads(x, W_qkv, W_proj, n_head, mask):
    """Add the heads up, and repeat the sum to fill the channels."""
    return forward_with(merge=lambda heads: heads.sum(dim=1).repeat(1, 1, n_head))(
        x, W_qkv, W_proj, n_head, mask
    )


def one_weight_for_all(x, W_qkv, W_proj, n_head, mask):
    """Split the rows of W_qkv by head first, each head with its own queries, keys and values."""
    B, T, C = x.shape
    q, k, v = (x @ W_qkv.T).view(B, T, n_head, 3 * C // n_head).transpose(1, 2).chunk(3, dim=-1)
    return merge_heads(attention(q, k, v, mask)[0]) @ W_proj.T


def same_reshaped(heads):
    """Merge without a transpose."""
    B, n_head, T, head_size = heads.shape
    return heads.reshape(B, T, n_head * head_size)


def view_too_early(x, n_head):
    """Split without a transpose."""
    B, T, C = x.shape
    return x.view(B, n_head, T, C // n_head)


EXERCISES = (
    Exercise(
        name="split_heads",
        task="Take `x` of shape (B, T, C) and return (B, n_head, T, head_size), with head_size = C / n_head. "
        "Head 0 gets the first head_size channels of every token, head 1 the next, and so on.",
        reference=split_heads,
        draw_inputs=draw_unsplit,
        properties=(
            Property("Head h holds head_size neighbouring channels.", a_head_has_neighbouring_channels),
            Property(
                "A change of the last token shows only at the last position.", a_token_stays_at_its_place
            ),
            Property(
                "No number is lost: the same ones come out, in another order.",
                lambda split, x, n_head: close(x.flatten().sort()[0], split(x, n_head).flatten().sort()[0]),
            ),
            trained_through(split_heads),
        ),
        mistakes=(
            Mistake(
                "view_without_transpose",
                view_too_early,
                "The shape is right, and the content is not. `view` keeps the numbers in their order in "
                "memory and cuts them anew, so head 0 gets all channels of the first tokens, not its "
                "channels of all tokens. View as (B, T, n_head, head_size) first, then swap T and n_head.",
            ),
            Mistake(
                "no_transpose",
                lambda x, n_head: x.view(*x.shape[:2], n_head, -1),
                "The channels are cut into the right pieces, but the heads stand in dimension 2 and the "
                "tokens in dimension 1. `@` works on the last two dimensions, which should be T and "
                "head_size: swap dimensions 1 and 2.",
            ),
            Mistake(
                "every_n_head_th_channel",
                scattered,
                "Head 0 got the channels 0, n_head, 2 n_head, ... The last two sizes of your `view` are "
                "swapped. Every head_size neighbours belong to one head: (B, T, n_head, head_size).",
            ),
            Mistake(
                "channels_before_tokens",
                lambda x, n_head: split_heads(x, n_head).transpose(-2, -1),
                "Each head holds (head_size, T), and it should hold (T, head_size). A row is a token, here "
                "as everywhere. One transpose too many, or over the wrong pair of dimensions.",
            ),
            Mistake(
                "head_size_and_n_head_swapped",
                lambda x, n_head: split_heads(x, x.shape[-1] // n_head),
                "There are head_size heads with n_head channels each: the two sizes are swapped. "
                "The dimension after T counts heads, the last one their channels.",
            ),
            Mistake(
                "heads_first",
                lambda x, n_head: torch.stack(x.split(x.shape[-1] // n_head, dim=-1)),
                "The heads stand in dimension 0, before the batch. All heads are right, but the order "
                "of dimensions is (B, n_head, T, head_size): stack them along dim=1.",
            ),
            Mistake(
                "splits_the_tokens",
                lambda x, n_head: x.reshape(x.shape[0], n_head, -1, x.shape[-1]),
                "Each head got some of the tokens, with all channels. It is the other way around: each head "
                "gets all tokens, with some of the channels.",
            ),
            Mistake(
                "transposed_before_the_cut",
                lambda x, n_head: x.transpose(1, 2).reshape(len(x), n_head, x.shape[1], -1),
                "You swapped T and C, and then cut (B, C, T) into the shape that is wanted. A row then holds "
                "one channel of several tokens. Cut C into (n_head, head_size) first, and swap after that.",
            ),
            Mistake(
                "joined_along_the_batch",
                lambda x, n_head: torch.stack(x.chunk(n_head, dim=-1)).reshape(
                    len(x), n_head, x.shape[1], -1
                ),
                "The heads are cut right, and joined in front of the batch: `torch.cat` without `dim`. With "
                "more than one text, the last `view` mixes texts and heads. Use `torch.stack` along dim=1.",
            ),
        ),
        hints=(
            "Take B = 1, T = 2, C = 4 and n_head = 2, and write down which numbers head 0 should hold. It "
            "has a row for each token.",
            "First cut only the last dimension: C becomes (n_head, head_size). That keeps the order in "
            "memory, so `view` can do it.",
            "`x.view(B, T, n_head, C // n_head)` has the heads in dimension 2. `.transpose(1, 2)` brings "
            "them before the tokens.",
        ),
        insight="The result shares its memory with `x`: no number was copied. A `view` after the "
        "transpose would fail for that reason.",
        minutes=5,
        difficulty=2,
    ),
    Exercise(
        name="merge_heads",
        task="The way back: take `heads` of shape (B, n_head, T, head_size) and return (B, T, C), with "
        "C = n_head * head_size. The channels of head 0 come first.",
        reference=merge_heads,
        draw_inputs=draw_split,
        properties=(
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
            trained_through(merge_heads),
        ),
        mistakes=(
            Mistake(
                "reshape_without_transpose",
                same_reshaped,
                "The shape is right, and the content is not: row 0 holds tokens of head 0 only, side by "
                "side. `reshape` reads the numbers in their order, head after head. Bring T before n_head "
                "first.",
            ),
            Mistake(
                "concatenated_along_time",
                lambda heads: heads.flatten(1, 2),
                "The heads stand below each other, so there are n_head * T tokens. They belong side by side: "
                "T stays, and the channels grow. Concatenate along the last dimension.",
            ),
            Mistake(
                "heads_interleaved",
                lambda heads: heads.permute(0, 2, 3, 1).flatten(2),
                "Each row is the right token, with its channels shuffled: the first channel of every head, "
                "then the second. Keep head_size last, so that the channels of one head stay together.",
            ),
            Mistake(
                "wrong_pair_transposed",
                lambda heads: same_reshaped(heads.transpose(-2, -1)),
                "You swapped T and head_size. The pair to swap is n_head and T, dimensions 1 and 2. Then "
                "head and channel stand last, ready to be merged.",
            ),
            Mistake(
                "sum_over_heads",
                lambda heads: heads.sum(dim=1),
                "The heads are added up, and only head_size channels are left. Which head found what is "
                "lost. Put them side by side; mixing them is the work of the output projection.",
            ),
            Mistake(
                "mean_over_heads",
                lambda heads: heads.mean(dim=1),
                "The heads are averaged, and only head_size channels are left. Which head found what is "
                "lost. Put them side by side; mixing them is the work of the output projection.",
            ),
            Mistake(
                "not_merged",
                lambda heads: heads.transpose(1, 2),
                "The transpose is right, and the heads still have a dimension of their own. Merge the last "
                "two dimensions into one: (n_head, head_size) becomes C.",
            ),
            Mistake(
                "wrong_pair_transposed_and_reshaped",
                lambda heads: heads.transpose(2, 3).reshape(len(heads), heads.shape[2], -1),
                "You swapped T and head_size, and the `reshape` cut the result into the shape that is "
                "wanted. The pair to swap is n_head and T, dimensions 1 and 2.",
            ),
            Mistake(
                "joined_along_the_batch",
                lambda heads: heads.transpose(0, 1).reshape(len(heads), heads.shape[2], -1),
                "The heads were joined below each other, along dim=0, and the `reshape` cut that anew: a row "
                "holds several tokens of one head. Join them side by side, along the last dimension.",
            ),
        ),
        hints=(
            "Undo the split step by step, last step first. What was the last step?",
            "`heads.transpose(1, 2)` is (B, T, n_head, head_size). Now the last two dimensions become one.",
            "After the transpose the numbers no longer lie in order, and `view` refuses. "
            "`reshape(B, T, n_head * head_size)` copies them.",
        ),
        insight="nanoGPT writes `.contiguous().view(...)` here: the same copy, asked for by name. A list of "
        "heads does it with `torch.cat(outputs, dim=-1)`.",
        minutes=4,
        difficulty=2,
    ),
    Exercise(
        name="multi_head_forward",
        task="Multi-head attention with plain tensors. `x` is (B, T, C), `W_qkv` (3C, C), `W_proj` (C, C), "
        "both used as in nn.Linear: `x @ W.T`. The rows of `W_qkv` make the queries, then the keys, then "
        "the values. `mask` (T, T) is True where a query may look. Return (B, T, C). A query that may look "
        "at nothing gets zeros.",
        reference=multi_head_forward,
        draw_inputs=draw_attention,
        properties=(
            Property(
                "Under a causal mask, a change of the last token moves no earlier output.", nothing_moves_up
            ),
            Property("Twice the projection gives twice the output.", projection_comes_last),
            Property("A text in a batch gives what it gives alone.", texts_apart),
            *sees_nothing(no_nan_for_the_blind, zeros_for_the_blind),
            trained_through(multi_head_forward),
        ),
        mistakes=(
            Mistake(
                "view_without_transpose",
                forward_with(split=lambda part, n_head: view_too_early(part.contiguous(), n_head)),
                "(B, n_head, T, head_size) is the right shape, and without a transpose it has the wrong "
                "content: head 0 gets all channels of the first tokens. The mask then hides the wrong "
                "things, and the future leaks. View as (B, T, n_head, head_size), then transpose.",
            ),
            Mistake(
                "view_that_pytorch_refuses",
                forward_with(split=view_too_early),
                "PyTorch refuses `view(B, n_head, T, head_size)` for most inputs, because q is cut out of "
                "wider rows. It is right to: head 0 would get all channels of the first tokens, and "
                "`reshape` would hide that. View as (B, T, n_head, head_size), then transpose.",
            ),
            Mistake(
                "view_without_transpose_both_ways",
                forward_with(
                    split=lambda part, n_head: view_too_early(part.contiguous(), n_head), merge=same_reshaped
                ),
                "Neither the split nor the merge has a transpose. Each head then works on some of the "
                "tokens, and later tokens never see the first ones. View as (B, T, n_head, head_size), "
                "transpose, and transpose back before you merge.",
            ),
            Mistake(
                "merged_without_transpose",
                forward_with(merge=same_reshaped),
                "The heads are right, and the merge is not: it reads head after head, so row 0 holds several "
                "tokens of head 0. Transpose (B, n_head, T, head_size) back before you reshape.",
            ),
            Mistake(
                "no_output_projection",
                forward_with(project=lambda out, W_proj: out),
                "The output projection is missing. What each head found lies side by side and is not mixed "
                "yet. Multiply by `W_proj.T` at the end.",
            ),
            Mistake(
                "scaled_by_n_embd",
                forward_with(scale=lambda C, head_size, T: C**-0.5),
                "The scores are divided by sqrt(C). Each dot product is a sum of head_size terms, and so its "
                "variance grows with head_size: divide by the root of that.",
            ),
            Mistake(
                "no_scale",
                forward_with(scale=lambda C, head_size, T: 1.0),
                "The scores are not scaled. A dot product of head_size terms has head_size times the "
                "variance of one: divide by sqrt(head_size).",
            ),
            Mistake(
                "softmax_over_heads",
                forward_with(dim=1, no_nan=True),
                "The softmax runs over the heads, so heads compete for each key, and masked entries become "
                "0/0. Each query of each head has a total of 1 for its keys: dim=-1.",
            ),
            Mistake(
                "softmax_over_heads_with_nan",
                forward_with(dim=1),
                "The softmax runs over the heads, dim=1. Where the mask hides a key, it hides it in every "
                "head, and that is 0/0: NaN. The keys of a query lie along dim=-1.",
            ),
            Mistake(
                "softmax_over_queries",
                forward_with(dim=-2),
                "The softmax runs over the queries, so columns share a total of 1, and the future leaks. "
                "The keys of a query lie along dim=-1.",
            ),
            Mistake(
                "one_head",
                one_head,
                "This is one head with all C channels: n_head was not used. Split the channels of q, k and v "
                "before the scores.",
            ),
            Mistake(
                "every_n_head_th_channel",
                forward_with(split=scattered),
                "Head 0 got the channels 0, n_head, 2 n_head, ... The last two sizes of your `view` are "
                "swapped: it is (B, T, n_head, head_size).",
            ),
            Mistake(
                "parts_inside_heads",
                one_weight_for_all,
                "You cut 3C into heads first, and each head into query, key and value. Here all queries come "
                "first: `split(C, dim=-1)` gives q, k and v, and then each of them is cut into heads.",
            ),
            Mistake(
                "no_mask",
                forward_with(hide=lambda mask: mask & False),
                "The mask was not used, so queries look into the future. `masked_fill` returns a new tensor: "
                "keep its result.",
            ),
            Mistake(
                "inverted_mask",
                forward_with(hide=lambda mask: mask),
                "The mask is inverted. It is True where a query may look, and `masked_fill` hides where its "
                "argument is True: hand it `~mask`.",
            ),
            Mistake(
                "mask_after_softmax",
                masked_after,
                "The mask comes after the softmax: hidden keys had their share of the total of 1, and rows "
                "sum to less. Set their scores to -inf before the softmax.",
            ),
            Mistake(
                "projection_not_transposed",
                forward_with(project=lambda out, W_proj: out @ W_proj),
                "The output is multiplied by `W_proj`. nn.Linear keeps a row for each output channel, so "
                "it is `out @ W_proj.T`. The matrix is square, and so nothing warns you.",
            ),
            Mistake(
                "queries_and_keys_swapped",
                forward_with(order=(1, 0, 2)),
                "Queries and keys are swapped. The first C rows of `W_qkv` make the queries, the next C the "
                "keys. With scores transposed, each key asks.",
            ),
            Mistake(
                "averages_the_keys",
                forward_with(order=(0, 1, 1)),
                "The weights mix the keys. They say where to look; what is fetched there is the value: "
                "`weights @ v`.",
            ),
            Mistake(
                "sums_the_heads",
                sums_heads,
                "The heads were added up. Concatenate them: each head keeps its own channels, and `W_proj` "
                "mixes them.",
            ),
            Mistake(
                "inverted_mask_with_zeros",
                forward_with(hide=lambda mask: mask, no_nan=True),
                "The mask is inverted, and a query that may look everywhere gets zeros. It is True where a "
                "query may look, and `masked_fill` hides where its argument is True: hand it `~mask`.",
            ),
            Mistake(
                "scaled_by_n_head",
                forward_with(scale=lambda C, head_size, T: (head_size / C) ** 0.5),
                "The scores are divided by sqrt(n_head), the number of heads. Each dot product is a sum of "
                "head_size terms: divide by the root of that.",
            ),
            Mistake(
                "heads_interleaved",
                forward_with(merge=lambda heads: heads.permute(0, 2, 3, 1).flatten(2)),
                "The heads are right, and the merge shuffles their channels: the first channel of every "
                "head, then the second. Keep head_size last, so that the channels of one head stay together.",
            ),
        ),
        hints=(
            "Six steps: one product with `W_qkv`, cut into q, k, v, split the heads, attention, merge, "
            "project. You have written most of them already.",
            "`q, k, v = (x @ W_qkv.T).split(C, dim=-1)`, each (B, T, C). Split each into "
            "(B, n_head, T, head_size), as in exercise 1.",
            "`scores = q @ k.transpose(-2, -1) / head_size**0.5`, mask and softmax as in one head: the mask "
            "(T, T) broadcasts over batch and heads, and weights that it hides are set to 0. Merge as in "
            "exercise 2, then `@ W_proj.T`.",
        ),
        insight="With q, k and v split, `F.scaled_dot_product_attention(q, k, v, attn_mask=mask)` replaces "
        "the scores, the mask, the softmax and the mix.",
        minutes=12,
        difficulty=4,
        tolerance=1e-4,
    ),
    Exercise(
        name="fuse_heads",
        task="Each head has matrices of its own: `W_q`, `W_k` and `W_v`, each (n_head, head_size, C), hold "
        "those of head h at index h, as in nn.Linear. Return the fused matrix (3C, C), with "
        "C = n_head * head_size: the rows of all queries, head 0 first, then all keys, then all values.",
        reference=fuse_heads,
        draw_inputs=draw_weights,
        properties=(Property("One product gives the q, k and v of every head.", one_product_for_all),),
        mistakes=(
            Mistake(
                "head_after_head",
                lambda W_q, W_k, W_v: torch.cat([W_q, W_k, W_v], dim=1).flatten(0, 1),
                "The rows come head after head: queries, keys and values of head 0, then those of head 1. "
                "`split(C)` needs all queries first, then all keys, then all values.",
            ),
            Mistake(
                "side_by_side",
                lambda *parts: torch.cat([part.flatten(0, 1) for part in parts], dim=-1),
                "The three parts stand side by side, shape (C, 3C). In nn.Linear a row is an output "
                "channel, and outputs are what grows: concatenate along dim=0.",
            ),
            Mistake(
                "rows_interleaved",
                lambda *parts: torch.cat([part.transpose(0, 1).flatten(0, 1) for part in parts]),
                "The rows of the heads are interleaved: row 0 of every head, then row 1. The rows of one "
                "head belong together, because the split gives neighbouring channels to one head.",
            ),
            Mistake(
                "keys_first",
                lambda W_q, W_k, W_v: fuse_heads(W_k, W_q, W_v),
                "The keys come first. The order is queries, keys, values; `split(C)` relies on it.",
            ),
            Mistake(
                "values_before_keys",
                lambda W_q, W_k, W_v: fuse_heads(W_q, W_v, W_k),
                "Keys and values are swapped. The order is queries, keys, values; `split(C)` relies on it.",
            ),
            Mistake(
                "transposed",
                lambda *parts: fuse_heads(*parts).T,
                "It is right, but transposed. nn.Linear keeps one row for each output channel: (3C, C).",
            ),
            Mistake(
                "heads_transposed",
                lambda *parts: torch.cat([part.flatten(0, 1).T for part in parts]),
                "Each of the three parts is transposed. A row of a head's matrix makes one channel of its "
                "query, and stays a row of the fused matrix.",
            ),
            Mistake(
                "not_flattened",
                lambda *parts: torch.cat(parts),
                "The three parts are in order, and the heads still have a dimension of their own. Merge "
                "(n_head, head_size) into the C rows of each part.",
            ),
            Mistake(
                "queries_three_times",
                lambda W_q, W_k, W_v: fuse_heads(W_q, W_q, W_q),
                "The query matrices stand there three times. The second part are the keys, `W_k`, and the "
                "third the values, `W_v`.",
            ),
            Mistake(
                "each_head_transposed",
                lambda *parts: torch.cat([part.transpose(1, 2).reshape(part.shape[2], -1) for part in parts]),
                "Each head's matrix is transposed before the rows are joined. The heads are kept as in "
                "nn.Linear already: a row for each output channel. Merge the first two dimensions.",
            ),
        ),
        hints=(
            "Which rows of the fused matrix make channel 0 of head 1's query? Write the order of all rows "
            "for two heads of size 1.",
            "`W_q.flatten(0, 1)` puts the heads' rows below each other: shape (C, C).",
            "Do that for all three and `torch.cat` them along dim=0.",
        ),
        insight="Joining three matrices below each other changes no output channel, and one product "
        "with many rows keeps a processor busier than many products with few.",
        minutes=5,
        difficulty=2,
    ),
)
