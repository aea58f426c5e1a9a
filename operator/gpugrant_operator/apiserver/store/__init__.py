"""Durable state: manifests (what a person wants), a journal (what the server adds), and the order between the two."""
