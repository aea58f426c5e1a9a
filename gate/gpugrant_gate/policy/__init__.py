"""Which request may reach a repo's Docker daemon, and as what. Pure: values in, a decision value out.

Nothing here opens a socket or a file, reads a clock or logs. What isn't known is refused.
"""
