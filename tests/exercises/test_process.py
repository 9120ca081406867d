"""What the process that judges does beside judging."""

from attention_course.exercises import EXERCISES
from attention_course.exercises.process import PRINTED, Relay, prepare


def test_little_is_shown_whole():
    sent = []
    relay = Relay(sent.append)
    for text in ("", "a" * PRINTED, "", "b", "c"):
        assert relay.write(text) == len(text)
    assert sent == [
        "a" * PRINTED,
        "\n... Your function prints more than this. The rest is not shown.\n",
    ]


def test_a_process_is_prepared_by_compiling_each_mistake_once():
    exercise = EXERCISES["rms_norm"]
    prepare((exercise.name, b"", None, {}))
    patched = [each.function for each in (*exercise.mistakes, *exercise.pairs) if each.edits]
    before = [vars(function)["compiled"] for function in patched]
    prepare((exercise.name, b"", None, {}))
    assert before == [function.compiled for function in patched]
