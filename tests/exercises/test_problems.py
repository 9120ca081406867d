"""What is wrong with an answer is said in words that fit, the gravest first."""

import pytest
import torch
from answers import bad, judged, mean_of_past

from attention_course.exercises import EXERCISES, check


@pytest.mark.parametrize(
    ("answer", "type_name"),
    [
        (lambda x: mean_of_past(x).tolist(), "list"),
        (lambda x: mean_of_past(x).numpy(), "ndarray"),
        (lambda x: mean_of_past(x).sum().item(), "float"),
        (lambda x: mean_of_past(x).to_sparse(), "torch.sparse_coo tensor"),
        (lambda x: mean_of_past(x).to("meta"), "torch.strided tensor on meta"),
    ],
)
def test_an_answer_of_the_wrong_type(answer, type_name):
    verdict = bad(answer)
    assert verdict.headline == "not yet: wrong type"
    assert verdict.mistakes == ("wrong_type",)
    assert f"returned a {type_name}" in verdict.message


def test_an_answer_that_returns_none_on_some_inputs():
    verdict = bad(lambda x: mean_of_past(x) if x.dim() == 2 else None)
    assert verdict.headline == "not yet: wrong type"
    assert "`return`" in verdict.message


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: mean_of_past(x).mean(dim=-1),
        lambda x: mean_of_past(x)[None],
        lambda x: x.sum(),
        lambda x: mean_of_past(x)[..., :0],
    ],
)
def test_an_answer_of_the_wrong_shape(answer):
    verdict = bad(answer)
    assert verdict.headline == "not yet: wrong shape"
    assert "(1, 2)" in verdict.message


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float16, torch.int64])
def test_an_answer_of_the_wrong_dtype(dtype):
    verdict = bad(lambda x: mean_of_past(x).to(dtype))
    assert verdict.headline == "not yet: wrong dtype"
    assert verdict.mistakes == ("wrong_dtype",)
    assert str(dtype) in verdict.message


@pytest.mark.parametrize(("dtype", "passes"), [(torch.float64, True), (torch.int64, False)])
def test_any_floating_dtype_will_do_where_none_was_given(dtype, passes):
    verdict = check("shift_matrix", lambda T: torch.diag(torch.ones(T - 1, dtype=dtype), -1))
    assert verdict.passed is passes
    assert passes or verdict.headline == "not yet: wrong dtype"


@pytest.mark.parametrize(
    ("name", "change", "argument"),
    [
        ("causal_mean_loop", lambda x: x.zero_(), "x"),
        ("encode_word", lambda ids, merges: merges.clear(), "merges"),
        ("context_length", lambda model, ids: model.table.zero_(), "model"),
    ],
)
def test_a_changed_argument_of_any_type_is_noticed_and_the_next_answer_gets_the_old_one(
    name, change, argument
):
    reference = EXERCISES[name].reference

    def changes(*arguments):
        value = reference(*arguments)
        change(*arguments)
        return value

    verdict = bad(changes, name, seed=3)
    assert verdict.headline == "not yet: it changes its input"
    assert verdict.mistakes == ("changed_input",)
    assert f"changes its argument `{argument}`" in verdict.message
    assert judged(name, reference, seed=3).passed


def test_an_answer_with_nan():
    verdict = bad(lambda x: mean_of_past(x).masked_fill(x > 1e4, float("nan")))
    assert verdict.headline == "not yet: NaN or inf"


def test_plain_wrong_values_say_which_properties_hold():
    verdict = bad(lambda x: x)
    assert verdict.headline == "not yet: wrong values"
    assert "of shape (3, 2)" in verdict.message
    assert "Compute the first value that differs by hand" in verdict.message
    page = verdict._repr_html_()
    assert "✓ holds" in page
    verdict = bad(lambda x: mean_of_past(x) * 2)
    assert "✗ fails" in verdict._repr_html_()


def weights_by_len(x):
    past = torch.ones(len(x), len(x)).tril()
    return past / past.sum(-1, keepdim=True) @ x


def rows_by_len(x):
    return torch.stack([x[..., : t + 1, :].mean(dim=-2) for t in range(min(len(x), x.shape[-2]))], dim=-2)


def three_sizes(x):
    _B, T, _C = x.shape
    return torch.stack([x[:, : t + 1].mean(dim=1) for t in range(T)], dim=1)


def nan_without_a_batch(x):
    return mean_of_past(x) * (1 if x.dim() == 3 else torch.nan)


ON_2D_ONLY = "It works for (T, C) and not for (B, T, C)"
ON_3D_ONLY = "It works for (B, T, C) and not for (T, C)"


@pytest.mark.parametrize(
    ("answer", "headline", "remark"),
    [
        (weights_by_len, "it raises an error", ON_2D_ONLY),
        (rows_by_len, "wrong shape", ON_2D_ONLY),
        (lambda x: mean_of_past(x) + x.dim() - 2, "wrong values", ON_2D_ONLY),
        (three_sizes, "it raises an error", ON_3D_ONLY),
        (lambda x: mean_of_past(x).reshape(-1, *x.shape[-2:]), "wrong shape", ON_3D_ONLY),
        (nan_without_a_batch, "NaN or inf", ON_3D_ONLY),
        (lambda x: mean_of_past(x) + 3 - x.dim(), "wrong values", ON_3D_ONLY),
    ],
)
def test_an_answer_that_works_with_or_without_a_batch_only(answer, headline, remark):
    for seed in range(3):
        verdict = bad(answer, "causal_mean_matmul", seed=seed)
        assert verdict.headline == f"not yet: {headline}"
        assert f". {remark}" in verdict.message or f"? {remark}" in verdict.message
        assert "`x.shape[-2]`" in verdict.message


def test_a_dim_counted_from_the_front_is_told_its_name_from_the_end():
    def softmax_along_dim_1(x):
        scores = torch.full_like(x @ x.mT, float("-inf")).triu(1)
        return scores.softmax(dim=1) @ x

    message = bad(softmax_along_dim_1, "causal_mean_softmax", seed=0).message
    assert ON_2D_ONLY in message
    assert "dim=-1 in place of dim=1" in message


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("causal_mean_matmul", lambda x: x),
        ("causal_mean_matmul", lambda x: mean_of_past(x) + (x.shape[-1] == 5)),  # only one (T, C)
        ("causal_mean_matmul", lambda x: mean_of_past(x) + (x.dim() == 3 and len(x) == 2)),
        ("stable_softmax", lambda x: x.softmax(-1) + (x.dim() == 3)),
        ("padding_weights", lambda s, n: s),
        ("shift_matrix", lambda T: torch.ones(T, T) * 7),
    ],
)
def test_other_answers_are_not_told_of_the_batch(name, answer):
    assert "It works for" not in bad(answer, name, seed=0).message
