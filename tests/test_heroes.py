"""The files of the heroes, and the HTML that holds one. The pictures are tested in the browser."""

import base64
import re
from xml.etree import ElementTree

import pytest
from IPython.core.formatters import DisplayFormatter

from attention_course.heroes import HEROES, hero


@pytest.fixture(params=HEROES)
def shown(request):
    return hero(request.param)


def test_a_hero_has_its_files_and_its_words(shown):
    assert shown.read(".js").count("function play(stage, ") == 1
    assert shown.title
    assert not shown.title.endswith(".")
    assert shown.alt.endswith(".")
    assert len(shown.alt) > 60
    assert 200 <= shown.height <= 460


def test_a_still_is_a_drawing_of_the_same_size_and_asks_for_nothing(shown):
    still = HEROES[shown.name].with_suffix(".svg").read_text(encoding="utf-8")
    root = ElementTree.fromstring(still)
    assert (root.get("width"), root.get("height")) == ("640", str(shown.height))
    assert len(list(root.iter())) > 2, "nothing is drawn"
    assert "prefers-color-scheme: dark" in still
    assert not re.findall(r'(?:href|src|url\()\s*=?"?https?:', still)


def test_the_page_holds_style_still_and_script(shown):
    page = shown.page()
    (image,) = re.findall(r'<img alt="[^"]+" src="data:image/svg\+xml;base64,([^"]+)">', page)
    assert base64.b64decode(image) == HEROES[shown.name].with_suffix(".svg").read_bytes()
    assert page.count("<script>") == page.count("</script>") == 1
    assert "play(new Stage(figure" in page
    assert not re.findall(r'(?:src|href)="https?:', page)


def test_a_cell_shows_it_as_html_and_in_words(shown):
    data, _ = DisplayFormatter().format(shown)
    assert data["text/html"] == shown.page()
    assert data["text/plain"] == f"{shown.title}. {shown.alt}"


def test_an_unknown_name_is_answered_with_those_that_there_are():
    with pytest.raises(ValueError, match="bag_of_words"):
        hero("bag_of_wrods")
