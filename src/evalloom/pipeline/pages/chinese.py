"""The Chinese phrases that only the pages of pipelines use, by the English ones."""

from __future__ import annotations

PHRASES: dict[str, str] = {
    "95 % of them within": "95% 不超过",
    "All runs of this batch": "此批次的全部运行",
    "Answer": "回答",
    "Batches of pipelines": "流水线批次",
    "Errors": "错误",
    "Failing": "未通过",
    "Inputs: {list}": "输入：{list}",
    "Mean time": "平均用时",
    "Most failures begin at step": "多数失败始于步骤",
    "No pipeline has been run in this folder yet:": "此文件夹中还没有运行过流水线：",
    "Outputs: {list}": "输出：{list}",
    "Pipeline": "流水线",
    "Pipelines": "流水线",
    "Pipelines in this folder": "此文件夹中的流水线",
    "Repaired:": "已修复：",
    "See it": "查看",
    "Show {n} more characters": "再显示 {n} 个字符",
    "Step": "步骤",
    "Step {step} went wrong first.": "步骤 {step} 最先出错。",
    "The whole run": "完整的运行记录",
    "There is no pipeline in this folder. A pipeline is a YAML file with steps; this writes one to start from:": (
        "此文件夹中没有流水线。流水线是带有步骤的 YAML 文件；以下命令会生成一个起始示例："
    ),
    "This run has no steps: it ended before the first one.": "此运行没有步骤：它在第一个步骤之前就结束了。",
    "Variants": "变体",
    "Went wrong first": "最先出错",
    "Went wrong first: the step ended in an error, or its check failed, and no failed step comes before it. "
    "Times leave out skipped steps.": (
        "最先出错：该步骤出错或其检查未通过，且之前没有失败的步骤。用时不含被跳过的步骤。"
    ),
    "aggregator": "聚合器",
    "all inputs of the case": "用例的全部输入",
    "as it is": "原样",
    "check failed": "检查未通过",
    "fails most": "失败最多",
    "for each item of a batch": "逐项处理批量数据",
    "function": "函数",
    "item {n}": "第 {n} 项",
    "no error": "无错误",
    "prompt": "提示词",
    "went wrong first": "最先出错",
    "{n} model calls": "{n} 次模型调用",
    "{n} more calls are in the log.": "日志中还有 {n} 次调用。",
    "{n} of them failed": "其中 {n} 个失败",
    "{n} skipped": "跳过 {n} 次",
    "{time} on average": "平均 {time}",
}
