"""A context recipe: read, checked, assembled, and run as a target."""
