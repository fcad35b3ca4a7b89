"""Zstandard from the standard library (Python 3.14 or later) or from its backport."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import ZstdFile, compress, decompress
else:
    from backports.zstd import ZstdFile, compress, decompress

__all__ = ["ZstdFile", "compress", "decompress"]
