"""What outlives a request: the snapshot on disk, the sealed folders, which repo may use what, whether a daemon is fit.

Deciding is apart from doing: each module's pure part takes values and the clock's reading; files are written whole or
not at all. What is missing or damaged grants nothing.
"""
