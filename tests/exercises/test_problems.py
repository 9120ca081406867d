"""What is wrong with an answer is said in words that fit, the gravest first."""

import pytest
import torch
from answers import bad, judged, mean_of_past

from attention_course.exercises import EXERCISES, judging

NAN = float("nan")
FORMS = (  # a right value in another form, and what is said of it
    (lambda value: value.numpy(), "wrong type"),
    (lambda value: value[None], "wrong shape"),
    (lambda value: value.to(torch.complex64), "wrong dtype"),
    (lambda value: value.to(torch.float8_e5m2), "wrong dtype"),  # PyTorch computes nothing with it
)


@pytest.mark.usefixtures("shapes_unchecked")
@pytest.mark.parametrize("name", [name for name, each in EXERCISES.items() if not each.judge])
def test_a_right_value_in_another_form_is_rejected(name):
    reference = EXERCISES[name].reference
    boolean = reference(*judging.trial(EXERCISES[name], 0).inputs[0]).dtype == torch.bool
    for form, headline in FORMS:
        verdict = judged(name, lambda *given, form=form: form(reference(*given).detach()), 0)
        numbers = boolean and headline == "wrong dtype" and verdict.mistake == "numbers_instead_of_booleans"
        assert numbers or (verdict.passed, verdict.headline) == (False, f"not yet: {headline}")


@pytest.mark.parametrize(
    ("answer", "headline", "says"),
    [
        (lambda x: mean_of_past(x).tolist(), "wrong type", "returned a list"),
        (lambda x: mean_of_past(x).sum().item(), "wrong type", "returned a float"),
        (lambda x: x.shape[0], "wrong type", "returned an int"),
        (lambda x: (x, mean_of_past(x)), "wrong type", "tuple of 2"),
        (lambda x: (0, mean_of_past(x)), "wrong type", "Return `[1]` of it alone"),
        (lambda x: mean_of_past(x).to_sparse(), "wrong type", "returned a torch.sparse_coo tensor"),
        (lambda x: mean_of_past(x).to("meta"), "wrong type", "returned a torch.strided tensor on meta"),
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "wrong type", "returned a quantized"),
        (lambda x: torch.nested.nested_tensor([x]), "wrong type", "returned a nested tensor"),
        (lambda x: mean_of_past(x) if x.dim() == 2 else None, "wrong type", "`return`"),
        (lambda x: torch.zeros(()).expand(10**12), "wrong shape", "has shape (1000000000000,)"),
        (lambda x: torch.zeros(()).expand(2, 3, 10**12), "wrong shape", "3 dimensions instead of 2"),
        (lambda x: x.sum(), "wrong shape", "0 dimensions instead of 2"),
        (lambda x: mean_of_past(x)[..., :0], "wrong shape", "Dimension 1 is 0, expected 2"),
        (lambda x: mean_of_past(x).mT, "wrong shape", "`.permute(1, 0)`"),
        (lambda x: mean_of_past(x).double(), "wrong dtype", "torch.float64"),
        (lambda x: mean_of_past(x).long(), "wrong dtype", "cuts off all fractions"),
        (lambda x: mean_of_past(x).masked_fill(x > 1e4, NAN), "NaN or inf", "values are NaN or inf"),
        (lambda x: x, "wrong values", "Compute the first value that differs by hand"),
    ],
)
@pytest.mark.filterwarnings("ignore:.*(nested|quanti)")
def test_what_is_wrong_is_said(answer, headline, says):
    verdict = bad(answer)
    assert verdict.headline == f"not yet: {headline}"
    assert says in verdict.message
    assert ("✓ holds" in verdict._repr_html_()) is (headline not in ("wrong type", "wrong shape"))


def test_a_right_value_in_a_subclass_is_right():
    def answer(x):
        class Named(torch.Tensor):
            pass

        return mean_of_past(x).as_subclass(Named)

    assert judged("causal_mean_loop", answer).passed


def test_of_a_long_error_the_beginning_is_said():
    verdict = bad(lambda x: int("y" * 1000))
    assert "ValueError: invalid literal" in verdict.message
    assert len(verdict.message) < 500


def test_any_floating_dtype_will_do_where_none_was_given_or_needed():
    schedule = EXERCISES["learning_rate_schedule"].reference
    assert judged("learning_rate_schedule", lambda *plan: schedule(*plan).double()).passed
    verdict = judged("shift_matrix", lambda T: torch.ones(T - 1, dtype=torch.int64).diag(-1))
    assert (verdict.passed, verdict.mistakes) == (False, ("wrong_dtype",))


@pytest.mark.parametrize(
    ("name", "change", "argument"),
    [
        ("causal_mean_loop", lambda x: x.zero_(), "x"),
        ("encode_word", lambda ids, merges: merges.clear(), "merges"),
        ("context_length", lambda model, ids: model.table.zero_(), "model"),
    ],
)
def test_a_changed_argument_is_noticed_and_the_next_answer_gets_the_old_one(name, change, argument):
    reference = EXERCISES[name].reference

    def changes(*arguments):
        value = reference(*arguments)
        change(*arguments)
        return value

    verdict = bad(changes, name, seed=3)
    assert verdict.mistakes == ("changed_input",)
    assert f"changes its argument `{argument}`" in verdict.message
    assert judged(name, reference, seed=3).passed


def rows_by_len(x):
    return torch.stack([x[..., : t + 1, :].mean(dim=-2) for t in range(min(len(x), x.shape[-2]))], dim=-2)


def three_sizes(x):
    _B, T, _C = x.shape
    return torch.stack([x[:, : t + 1].mean(dim=1) for t in range(T)], dim=1)


ON_2D_ONLY = "It works for (T, C) and not for (B, T, C)"
ON_3D_ONLY = "It works for (B, T, C) and not for (T, C)"


@pytest.mark.parametrize(
    ("answer", "headline", "remark"),
    [
        (rows_by_len, "wrong shape", ON_2D_ONLY),
        (lambda x: mean_of_past(x) + x.dim() - 2, "wrong values", ON_2D_ONLY),
        (
            lambda x: torch.full_like(x @ x.mT, -torch.inf).triu(1).softmax(dim=1) @ x,
            "wrong values",
            ON_2D_ONLY,
        ),
        (three_sizes, "it raises an error", ON_3D_ONLY),
        (lambda x: mean_of_past(x) * (1 if x.dim() == 3 else NAN), "NaN or inf", ON_3D_ONLY),
    ],
)
def test_an_answer_that_works_with_or_without_a_batch_only(answer, headline, remark):
    for seed in range(3):
        verdict = bad(answer, "causal_mean_matmul", seed=seed)
        assert verdict.headline == f"not yet: {headline}"
        assert f" {remark}" in verdict.message
        assert "`x.shape[-2]`" in verdict.message


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
