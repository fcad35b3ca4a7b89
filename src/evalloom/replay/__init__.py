"""Context recipes: rows assembled into contexts, recorded, and compared."""
