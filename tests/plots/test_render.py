"""The script of the panels in Python: how a text is measured, and how a state is handed over."""

import math
from pathlib import Path
from threading import Thread

import matplotlib
import numpy as np
import pytest
import quickjs
from matplotlib.ft2font import FT2Font

from attention_course.plots import Text, picture
from attention_course.plots.render import script, written


def test_letters_are_as_wide_as_those_of_dejavu():
    font = FT2Font(Path(matplotlib.get_data_path(), "fonts/ttf/DejaVuSans.ttf"))
    font.set_size(1, 72)
    advances = [font.load_char(code).linearHoriAdvance / 2**16 for code in range(32, 127)]
    context = script()
    assert [context.eval(f"widthOf(String.fromCodePoint({code}), 1)") for code in range(32, 127)] == advances
    assert context.eval('widthOf("−√⟨日\U0010ffff", 1)') > 3, "what stands in no table takes room, too"
    assert context.eval('widthOf("four", 12)') == pytest.approx(
        12 * sum(advances[ord(letter) - 32] for letter in "four")
    )


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
