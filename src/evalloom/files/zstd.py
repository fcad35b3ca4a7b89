"""Zstandard: Python's own from 3.14 on, the backport before."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdFile, compress, decompress
else:
    from backports.zstd import ZstdFile, compress, decompress

__all__ = ["ZstdFile", "compress", "decompress"]
