"""The gate's shell: sockets, processes, files that are watched. It gathers facts and carries bytes; it decides nothing.

What a decision needs comes from `policy`, what a message means from `wire`. No byte of a client reaches a daemon
before a decision, and where something can't be found out, hardware is refused.
"""
