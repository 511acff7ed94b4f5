"""Synthetic multi-turn tasks in BFCL's worlds: programs that ran, and the words that ask for them.

In: training tasks of a split, whose tool classes and initial states are used. Out: a pool of tasks
with references (`pool`), made again byte for byte from the same arguments. Nothing of the
evaluation side is in it: neither its states nor its programs nor its texts (`filters`).

How one task is made: `sampler` draws a program, call by call, from what the tools accept in the
state that they are in (`tools`: for every tool where its arguments come from, and at least three
wordings). `wording` writes the user's requests. `categories` holds a tool or a value back.
`verification` executes the task with bfcl-eval's own checks. `filters` compares it with the
evaluation side, and `targets` says what can go wrong in it. To add a tool, add its entry to the
file of its class in `tools/`.
"""
