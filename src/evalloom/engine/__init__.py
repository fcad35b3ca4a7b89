"""Where the stages meet: one module per job that a user asks for."""
