"""The attacks as data: bytes and steps, each with an id; `rows` says which of them covers what of the Docker API.

The tests run them against real daemons, the fuzzers begin with them.
"""
