"""Make large files of realistic Chinese and English cases, the same ones every time."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

_ZH = (
    "员工请假与休假管理制度的办理步骤包括在系统中发起申请填写事项说明并上传附件经主管审核后执行归档"
    "退款审核通过之后三到五个工作日内原路返回质量问题商品签收七日之内可以退货换货需要保留完整包装"
    "存档可以导入导出自定义资产支持批量上传权限由管理员分配密码重置链接三十分钟有效"
)
_ENGLISH = (
    "the refund reaches the original account within five working days after review password reset links expire "
    "after thirty minutes workspace roles are assigned by the owner webhooks retry with backoff billing plans change "
    "at the end of the period archives can be imported and exported from the settings page"
)
_EN = _ENGLISH.split()
_FOLDERS = ("docs/hr", "docs/billing", "docs/security", "handbook/zh", "handbook/en")


def _text(rng: random.Random, low: int, high: int) -> str:
    size = rng.randint(low, high)
    if rng.random() < 0.5:
        start = rng.randrange(len(_ZH))
        return (_ZH[start:] + _ZH)[:size] + f"第{rng.randint(1, 999)}条"
    return " ".join(rng.choices(_EN, k=max(2, size // 4))) + f" ({rng.randint(1, 999)})"


def _rag(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": f"case-{number:07d}",
        "query": _text(rng, 12, 60),
        "expected_sources": [f"{rng.choice(_FOLDERS)}/{rng.randint(1, 400)}.md" for _ in range(rng.randint(1, 3))],
        "must_include": [_text(rng, 6, 16) for _ in range(rng.randint(1, 3))],
        "bucket": ("official", "oral")[number % 2],
        "pair_id": f"pair-{number // 2}",
        "concept_id": f"concept-{number // 20}",
        "reference_answer": _text(rng, 60, 240),
        "tags": ["regression", "zh" if number % 3 else "en"],
    }


def _hop(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": number,
        "tag": rng.choice(("fabrication", "clean", "number", "date")),
        "description": _text(rng, 10, 30),
        "difficulty": rng.choice(("easy", "medium", "hard")),
        "context_window": _text(rng, 100, 400),
        "model_output": _text(rng, 60, 200),
        "expected_hallucination_detected": rng.random() < 0.5,
    }


def _pipeline(rng: random.Random, number: int) -> dict[str, Any]:
    return {
        "id": f"review_{number}",
        "tags": ["sentiment", "batch"],
        "inputs": {"text": _text(rng, 80, 300), "language": "zh"},
        "step_inputs": {"clean": {"mode": "strict"}, "classify": {"labels": ["good", "bad"], "top_k": 3}},
        "intermediate_expectations": {"clean": {"text": _text(rng, 40, 120)}},
        "expected_outputs": {"sentiment": rng.choice(("positive", "negative")), "score": round(rng.random(), 3)},
        "evaluation_config": {"evaluate_intermediate": True, "tolerance": 0.05},
    }


MAKERS: dict[str, Callable[[random.Random, int], dict[str, Any]]] = {"rag": _rag, "hop": _hop, "pipeline": _pipeline}


def lines(dialect: str, size: int) -> Iterator[bytes]:
    """Lines of JSONL in a dialect, about `size` bytes in all."""
    rng, written, number = random.Random(7), 0, 0
    while written < size:
        number += 1
        line = json.dumps(MAKERS[dialect](rng, number), ensure_ascii=False).encode() + b"\n"
        written += len(line)
        yield line


def make(path: Path, dialect: str, size: int) -> Path:
    """Writes a file once; later runs find it."""
    if not path.exists() or path.stat().st_size < size:
        with path.open("wb") as stream:
            stream.writelines(lines(dialect, size))
    return path
