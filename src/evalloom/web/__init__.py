"""The HTTP app: pages of the engine, sessions, live progress, and the server."""
