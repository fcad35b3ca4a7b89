"""The operators of a hoplet: call the llm, verify the answer, retry with the reason, and trace every step.

Import them from `evalloom.hop`.
"""
