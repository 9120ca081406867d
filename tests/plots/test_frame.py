"""The frame of a verdict: a sign, a headline, and text that cannot break out of them."""

import pytest

from attention_course.plots.frame import frame


@pytest.mark.parametrize(("sign", "colour"), [("✓", "#0072b2"), ("✗", "#b3123c"), ("→", "#767676")])
def test_the_bar_has_the_colour_of_the_sign_and_all_but_the_body_is_escaped(sign, colour):
    page = frame("<i>", sign, "1 < 2", "<p>body</p>")
    assert f"border-left:5px solid {colour}" in page
    assert f"{sign} 1 &lt; 2" in page
    assert "&lt;i&gt;" in page
    assert "<p>body</p></div>" in page
