"""The script of fills: which orders of lines it calls right."""

import json
import random

import make_fills
import pytest
from gaps import lines_of

from attention_course.fills import fills
from attention_course.ladder import RUNGS

BY_NAME = {each.name: each for rung in RUNGS for each in make_fills.sources(rung)}


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name, made in fills().items() if "blocks" in made])
def test_lines_may_stand_in_any_order_in_which_they_do_the_same(name, page_of):
    page, exercise = page_of("fills/fill.js"), BY_NAME[name]
    lines = lines_of(exercise)
    code = make_fills.code_of(exercise)
    texts = [code[slice(*line.span)] for line in lines]
    draw = random.Random(name)
    orders = {tuple(range(len(lines)))}
    for _ in range(4):
        order = list(range(len(lines)))
        i = draw.randrange(len(order) - 1)
        order[i : i + 2] = order[i + 1], order[i]  # neighbours change places
        orders.add(tuple(order))
    orders.add(tuple(draw.sample(range(len(lines)), len(lines))))
    stored = json.dumps(fills()[name]["blocks"]["lines"])
    for order in orders:
        code_lines = json.dumps([{"text": texts[i]} for i in order])
        said = page.get(f"misplaced({list(order)}, {code_lines}, {stored})")
        body = [" " * 4 * (lines[i].indent + 1) + texts[i] + "\n" for i in order]
        try:
            function = make_fills.compiled(exercise, code.partition("\n")[0] + "\n" + "".join(body))
        except SyntaxError:
            assert said
        else:
            assert (make_fills.judgement(exercise, function)[0] is None) == (not said), (order, said)
