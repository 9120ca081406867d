"""The attention ladder: eight notebooks from a mean of the past to a GPT.

Read the modules in this order and they are the course again: `averaging`, `attention`.
"""
