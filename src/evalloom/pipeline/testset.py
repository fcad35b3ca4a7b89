"""The Python API of pipeline testsets: load, check, filter and inspect cases (PIPE-5)."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from evalloom.core.errors import usage_error
from evalloom.core.model import Finding, Origin, Record
from evalloom.data.dataset import Dataset
from evalloom.data.dialect import Rules
from evalloom.data.validate import validate
from evalloom.files.rows import Row
from evalloom.files.source import source_of
from evalloom.pipeline.dialect import DIALECT, FORMATS
from evalloom.pipeline.extensions import FIELDS as EXTENSION_FIELDS
from evalloom.pipeline.record import DEFAULTS, FIELDS, canonical, has_implied_inputs


@dataclass
class TestCase:
    """A case of a testset in v2.0 form; `raw_data` is the record as read."""

    __test__ = False  # Otherwise pytest collects it as a test class.

    id: str
    tags: list[str] = field(default_factory=list)
    inputs: Record = field(default_factory=dict)
    step_inputs: dict[str, Record] = field(default_factory=dict)
    batch_items: list[Record] | None = None
    expected_outputs: Record = field(default_factory=dict)
    expected_aggregation: Any = None
    intermediate_expectations: Record = field(default_factory=dict)
    evaluation_config: Record = field(default_factory=dict)
    raw_data: Record = field(default_factory=dict, repr=False)

    @classmethod
    def from_dict(cls, record: Record) -> Self:
        """Create a case from a record in v2.0 or v1.0."""
        record_v2 = canonical(record)
        fields = {name: record_v2[name] for name in FIELDS if record_v2.get(name) is not None}
        return cls(**{"id": "", **fields, "raw_data": dict(record)})

    def to_dict(self) -> Record:
        """Return the v2.0 record of the case: fields that differ from their defaults or were set, and custom fields."""
        original = canonical(self.raw_data) if self.raw_data else {}
        custom_fields = {name: value for name, value in original.items() if name not in FIELDS}
        values = {name: getattr(self, name) for name in FIELDS}
        fields = {n: v for n, v in values.items() if v != DEFAULTS[n] or n == "id" or n in original}
        if has_implied_inputs(self.raw_data) and self.inputs == original.get("inputs"):
            custom_fields |= fields.pop("inputs")  # they are written as they were read
        return {**fields, **custom_fields}

    def get_input(self, key: str, default: Any = None) -> Any:
        return self.inputs.get(key, default)

    def get_step_input(self, step_id: str, key: str, default: Any = None) -> Any:
        return self.step_inputs.get(step_id, {}).get(key, default)

    def has_batch_data(self) -> bool:
        return bool(self.batch_items)

    def has_step_inputs(self) -> bool:
        return bool(self.step_inputs)

    def has_expected_aggregation(self) -> bool:
        return self.expected_aggregation is not None

    def has_intermediate_expectations(self) -> bool:
        return bool(self.intermediate_expectations)

    def should_evaluate_intermediate(self) -> bool:
        return bool(self.evaluation_config.get("evaluate_intermediate", False))

    def should_evaluate_final(self) -> bool:
        return bool(self.evaluation_config.get("evaluate_final", True))

    def should_evaluate_aggregation(self) -> bool:
        return self.has_expected_aggregation() and bool(self.evaluation_config.get("evaluate_aggregation", True))


class TestsetLoader:
    """Functions that load, check and filter testsets."""

    __test__ = False

    @staticmethod
    def load_testset(path: str | Path) -> list[TestCase]:
        """Load the cases of a file in either version. Raises if the file has errors; `findings` lists them."""
        errors = [finding for finding in TestsetLoader.findings(path) if finding.severity == "error"]
        if errors:
            more = f" (and {len(errors) - 1} more; see 'evalloom validate')" if len(errors) > 1 else ""
            raise usage_error("invalid_testset", f"{errors[0]}{more}")
        dataset = Dataset(source_of(path), FORMATS, "pipeline")
        return [TestCase.from_dict(row.value) for row in dataset if isinstance(row, Row)]

    load = load_testset

    @staticmethod
    def findings(path: str | Path, steps: Iterable[str] | None = None) -> list[Finding]:
        """Return all findings about a testset file; `steps` are the step ids of its pipeline."""
        rules = Rules(steps=None if steps is None else frozenset(steps))
        return validate(Dataset(source_of(path), FORMATS, "pipeline"), rules).findings

    @staticmethod
    def validate_testset(cases: Iterable[TestCase], steps: Iterable[str] | None = None) -> list[Finding]:
        """Return all findings about cases in memory; the line is the number of the case."""
        rules = Rules(steps=None if steps is None else frozenset(steps))
        findings: list[Finding] = []
        first: dict[str, int] = {}
        for number, case in enumerate(cases, 1):
            origin = Origin("testset", number)
            # The fields are checked as they are, so that wrong types are reported.
            record = {name: value for name, value in case.raw_data.items() if name in EXTENSION_FIELDS}
            values = {name: getattr(case, name) for name in FIELDS}
            record |= {name: value for name, value in values.items() if value != DEFAULTS[name] or name == "id"}
            for remark in DIALECT.findings(record, rules):
                field_name = str(remark.path[0]) if remark.path else ""
                findings.append(Finding(remark.code, remark.severity, remark.message, origin, field_name, str(case.id)))
            if first.setdefault(str(case.id), number) != number:
                message = f"id: {case.id!r} of case {number} is already the id of case {first[str(case.id)]}"
                findings.append(Finding("duplicate_id", "error", message, origin, "id", str(case.id)))
        return findings

    validate = validate_testset

    @staticmethod
    def filter_by_tags(
        cases: Iterable[TestCase],
        include_tags: Iterable[str] | None = None,
        exclude_tags: Iterable[str] | None = None,
    ) -> list[TestCase]:
        """Return cases with any of the included tags and none of the excluded tags."""
        wanted, unwanted = set(include_tags or ()), set(exclude_tags or ())
        return [case for case in cases if (not wanted or wanted & {*case.tags}) and not unwanted & {*case.tags}]

    @staticmethod
    def get_batch_test_cases(cases: Iterable[TestCase]) -> list[TestCase]:
        return [case for case in cases if case.has_batch_data()]

    @staticmethod
    def get_step_input_test_cases(cases: Iterable[TestCase]) -> list[TestCase]:
        return [case for case in cases if case.has_step_inputs()]

    @staticmethod
    def get_intermediate_evaluation_test_cases(cases: Iterable[TestCase]) -> list[TestCase]:
        """Return cases with intermediate expectations that are evaluated."""
        return [case for case in cases if case.has_intermediate_expectations() and case.should_evaluate_intermediate()]

    @staticmethod
    def extract_step_data(case: TestCase, step_id: str) -> Record:
        """Return the `inputs` and the `expected` output of one step, if the case has them."""
        step_data: Record = {}
        if step_id in case.step_inputs:
            step_data["inputs"] = case.step_inputs[step_id]
        if step_id in case.intermediate_expectations:
            step_data["expected"] = case.intermediate_expectations[step_id]
        return step_data

    @staticmethod
    def group_by_pipeline_features(cases: Iterable[TestCase]) -> dict[str, list[TestCase]]:
        """Group cases by feature; a case may be in several groups, and with all three features it is complex."""
        groups: dict[str, list[TestCase]] = {
            name: [] for name in ("simple", "multi_step", "batch_processing", "intermediate_evaluation", "complex")
        }
        for case in cases:
            uses = {
                "multi_step": case.has_step_inputs(),
                "batch_processing": case.has_batch_data(),
                "intermediate_evaluation": case.has_intermediate_expectations(),
            }
            for name in (name for name, used in uses.items() if used):
                groups[name].append(case)
            if all(uses.values()) or not any(uses.values()):
                groups["complex" if all(uses.values()) else "simple"].append(case)
        return groups

    group_by_feature = group_by_pipeline_features
