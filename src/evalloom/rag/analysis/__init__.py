"""RAG batches in numbers: ranking measures, and oral against official wording."""
