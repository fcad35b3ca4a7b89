"""The operators of a hoplet: ask, verify what came back, try again with the reason, and take down every step.

`evalloom.hop` is the door to them.
"""
