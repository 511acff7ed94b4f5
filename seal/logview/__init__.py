"""Web pages over what runs leave behind, live while a run writes: python -m seal.logview.

Read-only, for one person on one machine. `growing` reads files that may still be written,
`records` says what their lines hold, `runs` knows the folders, `dialogue` cuts a dialogue's text
into messages, `charts` computes the drawings, `app` serves the pages.

Fits no purpose but looking: nothing of the project imports it, and it imports no torch.
"""
