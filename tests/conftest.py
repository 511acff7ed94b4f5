"""Tests interrupt the programs that they start.

nohup ignores SIGHUP, and a shell ignores SIGINT for what it starts with "&". Both reach the
programs through pytest, unless it puts them back.
"""

import signal

signal.signal(signal.SIGHUP, signal.SIG_DFL)
signal.signal(signal.SIGINT, signal.default_int_handler)
