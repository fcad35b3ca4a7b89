"""The Chinese phrases that only the pages of prompt evaluations use, by the English ones."""

from __future__ import annotations

PHRASES: dict[str, str] = {
    "Batches of the same cases": "相同用例的批次",
    "Comment": "评语",
    "Folder": "文件夹",
    "Hide the scores of the judge": "隐藏评判模型的分数",
    "Nobody has scored a case yet, so it is unknown how far the judge can be trusted. About 30 cases give a first "
    "answer.": ("还没有人工评分，因此不知道评判模型是否可信。约 30 个用例即可得出初步结论。"),
    "People have scored every case.": "所有用例都已有人工评分。",
    "Prompt": "提示词",
    "Prompt evaluations": "提示词评测",
    "Not scored yet. To answer and score its cases:": "尚未评分。运行以下命令即可作答并评分：",
    "Prompts": "提示词",
    "Save": "保存",
    "Save and go on": "保存并继续",
    "Score cases yourself": "亲自评分",
    "Scored by people": "已人工评分",
    "Scores by people": "人工评分",
    "Show the scores of the judge": "显示评判模型的分数",
    "Show {n} more characters": "再显示 {n} 个字符",
    "Sign in to score this case yourself.": "登录后即可为此用例评分。",
    "Stored in human_scores.json, as an imported review is.": "保存在 human_scores.json 中，与导入的评审相同。",
    "There are scores by people of an earlier output. New ones replace them.": (
        "已有针对先前输出的人工评分，新的评分将取代它们。"
    ),
    "There is no evaluation of a prompt in this folder yet. Start with your prompt; a model drafts the plan and the "
    "cases:": "此文件夹中还没有提示词评测。请从提示词开始，模型会起草测试计划和用例：",
    "This review was imported, so it is not changed here. Import a table to replace it.": (
        "此评审是导入的，因此不能在此修改。请导入表格来替换它。"
    ),
    "Your name": "您的姓名",
    "Your score": "您的评分",
    "imported from a table": "从表格导入",
    "none yet": "尚无",
    "not scored by people": "尚无人工评分",
    "of {n} cases": "共 {n} 个用例",
    "same as the judge": "与评判模型相同",
    "scored by people": "已人工评分",
    "the judge gave {n}": "评判模型给了 {n} 分",
    "{n} of {all} shown": "显示 {n} / {all}",
    "{n} test points": "{n} 个测试点",
}
