"""Panels escape what came from a learner, and need nothing from outside."""

import html
import re

import torch
from answers import bad, mean_of_past

from attention_course.exercises import EXERCISES, check, hint, panel


class Nasty:
    def __repr__(self):
        return "<script>alert(1)</script>"


def test_html_is_escaped():
    def raises(x):
        raise ValueError("<img src=x onerror=alert(1)>")

    page = bad(raises)._repr_html_()
    assert "<img" not in page
    assert html.escape("<img src=x onerror=alert(1)>") in page
    page = bad(lambda x: Nasty())._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_differing_cells_are_framed_and_the_slice_is_named():
    def wrong_in_the_second_sequence(x):
        out = mean_of_past(x)
        if x.dim() == 3 and x.shape[0] > 1:
            out[1, -1, -1] += 1
        return out

    page = bad(wrong_in_the_second_sequence)._repr_html_()
    assert page.count("outline:2px") == 1
    assert "here yours[1]" in page
    assert "here target[1]" in page


def test_large_tensors_are_cut():
    page = panel.table("x", torch.arange(4000.0).reshape(2, 20, 100), (1,))
    assert "here x[1], the first 9 rows and columns" in page
    assert page.count("<td") == 81


def test_panels_need_nothing_from_outside():
    verdicts = [check(n, m.function)._repr_html_() for n in EXERCISES for m in EXERCISES[n].mistakes[:1]]
    for page in (*verdicts, hint("shift_matrix")._repr_html_()):
        assert not re.search(r"<script|https?:|url\(|<link|<img", page)
        assert page.count("<div") == page.count("</div")
