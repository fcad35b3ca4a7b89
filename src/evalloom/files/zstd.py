"""Zstandard: Python's own from 3.14 on, the backport before."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdCompressor, ZstdFile, decompress
else:
    from backports.zstd import ZstdCompressor, ZstdFile, decompress

__all__ = ["ZstdCompressor", "ZstdFile", "decompress"]
