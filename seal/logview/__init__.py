"""Web pages over what runs leave behind, live while a run writes: python -m seal.logview.

Read-only, for one person on one machine. `growing` reads files that may still be written, `lines`
says what their lines hold, `experiments` knows the folders, `messages` cuts a dialogue's text into
messages, `charts` computes the drawings, `views` makes the values of each page, `app` serves them.

No other package of the project imports it, and it imports no torch.
"""
