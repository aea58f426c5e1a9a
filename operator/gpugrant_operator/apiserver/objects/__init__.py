"""What a request means, as pure functions over plain JSON values: no I/O, no clock, no environment."""
