"""Answers to the exercises of looking_inside."""

import torch

from answers import right, wrong


@right("find_induction_head")
def find_by_searching_each_token(weights, ids):
    scores, tokens = torch.zeros(weights.shape[:2]), ids.tolist()
    for t in range(len(tokens) // 2, len(tokens)):
        scores += weights[..., t, tokens.index(tokens[t]) + 1]
    return (scores == scores.max()).nonzero()[0]


wrong(
    "find_induction_head",
    find_the_last_head_of_the_layer=lambda weights, ids: (
        find_by_searching_each_token(weights, ids) * torch.tensor([1, 0])
        + torch.tensor([0, weights.shape[1] - 1])
    ),
)
