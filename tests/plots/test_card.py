"""The frame of a verdict: a sign, a headline, and text that cannot break out of them."""

import pytest

from attention_course.plots.card import accent, frame, points, prose


@pytest.mark.parametrize(("sign", "colour"), [("✓", "#0072b2"), ("✗", "#b3123c"), ("→", "#767676")])
def test_the_bar_has_the_colour_of_the_sign_and_all_but_the_body_is_escaped(sign, colour):
    page = frame("<i>", sign, "1 < 2", "<p>body</p>")
    assert f"border-left:5px solid {colour}" in page
    assert f"{sign} 1 &lt; 2" in page
    assert "&lt;i&gt;" in page
    assert "<p>body</p></div>" in page


def test_each_point_has_a_bar_in_the_colour_of_its_sign():
    page = points([("✓", "right", "<i>a</i>"), ("✗", "wrong", "b")])
    for sign, point in (("✓", "✓ right &nbsp;<i>a</i></li>"), ("✗", "✗ wrong &nbsp;b</li>")):
        assert f'border-left:3px solid {accent(sign)};padding-left:8px">{point}' in page


def test_prose_is_escaped_and_has_code():
    assert prose("1 < `a[2]`").endswith(">a[2]</code></p>")
    assert "1 &lt; <code" in prose("1 < `a[2]`")
