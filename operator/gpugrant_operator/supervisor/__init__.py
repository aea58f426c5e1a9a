"""Keeps the parts of a standalone instance running: apiserver, operator, gate (design 1).

The parts outlive the supervisor: it starts them in sessions of their own, finds those that run by their lock files and
control sockets, and adopts them. It never ends a process of which it has not seen that it holds the part's lock or was
started as that part.
"""
