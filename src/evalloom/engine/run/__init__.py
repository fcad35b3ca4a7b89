"""Cases and a target -> runs."""

from evalloom import moved
from evalloom.engine.run.conditions import Conditions
from evalloom.engine.run.jobs import Job, Jobs, Keys, SelectedCase, numbered, run_of
from evalloom.engine.run.needs import NO_NEEDS, DependencyQueue, Needs, collect_needs
from evalloom.engine.run.runner import ProfileClients, Runner, Traced
from evalloom.engine.run.schedule import Slots, execute

__all__ = [
    "NO_NEEDS",
    "Conditions",
    "DependencyQueue",
    "Job",
    "Jobs",
    "Keys",
    "Needs",
    "ProfileClients",
    "Runner",
    "SelectedCase",
    "Slots",
    "Traced",
    "collect_needs",
    "execute",
    "numbered",
    "run_of",
]


def __getattr__(name: str) -> object:
    return moved.find_name(__name__, name)
