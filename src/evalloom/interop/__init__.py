"""Files of other tools: each is read as it is, and its vocabulary becomes cases and checks."""
