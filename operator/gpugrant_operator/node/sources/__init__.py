"""Readers of one machine's files and tools: a tree in, frozen values out; what can't be read is the tree's fault."""
