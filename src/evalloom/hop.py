"""Door for people who run HOP batch tests."""

from evalloom.contract import Contract, Field, read_contract
from evalloom.dialects.hop import inputs_of, normalize_audit, normalize_input, unpack_result

__all__ = ["Contract", "Field", "inputs_of", "normalize_audit", "normalize_input", "read_contract", "unpack_result"]
