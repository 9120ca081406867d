"""A vote in a classroom: `attention-course class after_a_space` on the teacher's laptop.

Phones in the same network vote on a page without an account, talk, and vote again: peer instruction, as in
Mazur (1997), "Peer Instruction: A User's Manual". `session` has what happens in class, `server` the pages.
"""
