"""Folders that others write, such as Git checkouts: their objects are taken, and nothing is ever written there."""
