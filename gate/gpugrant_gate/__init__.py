"""The gate: a proxy on each repo daemon's Unix socket that lets hardware through only by a granted CDI name."""
