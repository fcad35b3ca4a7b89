"""The steps of prompt-eval, one file each."""
