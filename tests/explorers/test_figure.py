"""The picture of an explorer reaches the browser whole: what is shown and what is said, in one message."""

import numpy as np
import pytest

from attention_course.explorers import explore


def test_one_message_a_change():
    """Panels and caption reach the browser together, with the numbers as bytes."""
    explorer = explore("tril_matmul")
    messages = []
    explorer.figure.send_state = lambda names: messages.append(set(names))
    explorer.controls["decay"].value = 0.5
    assert len(messages) == 1
    assert {"panels", "caption"} <= set(messages[0])
    state = explorer.figure.get_state()["panels"][0]
    weights = np.frombuffer(state["values"], dtype=np.float32).reshape(8, 8)
    assert weights.sum(axis=1) == pytest.approx([1] * 8)
