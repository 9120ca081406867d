"""The script of the panels in Python: how a text is measured, and how a state is handed over."""

import math
from threading import Thread

import numpy as np
import pytest
import quickjs

from attention_course.plots import Text, picture
from attention_course.plots.drawing import script, width_of, written


def test_texts_are_measured_in_font_sizes():
    assert width_of("") == 0
    assert width_of("0000") == pytest.approx(4 * width_of("0"))
    assert width_of("i") < width_of("0") < width_of("W") < 1.1
    assert width_of("−√⟨日\U0010ffff") > 0, "what has no glyph takes room, too"


def test_the_script_reads_every_number():
    values = np.array([1.5, math.nan, math.inf, -math.inf], dtype=np.float32)
    state = written([{"values": values.tobytes(), "title": "a “title” </script>"}])
    context = quickjs.Context()
    told = context.eval(f"(([panel]) => [panel.title, ...panel.values].join())({state})")
    assert told == "a “title” </script>,1.5,NaN,Infinity,-Infinity"


def test_an_error_in_the_script_names_itself():
    with pytest.raises(quickjs.JSException, match="TypeError"):
        script().eval('svgOf([{ kind: "None" }])')


def test_pictures_are_drawn_in_any_thread():
    drawn = []
    thread = Thread(target=lambda: drawn.append(picture(Text("t", "a text"), alt="").svg))
    thread.start()
    thread.join()
    assert drawn == [picture(Text("t", "a text"), alt="").svg]
