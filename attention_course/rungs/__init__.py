"""The rungs: a folder with notebook, opening picture, questions, explorer and exercises for each."""

import attention_course.exercises  # noqa: F401 (before those of a rung, which it collects)
