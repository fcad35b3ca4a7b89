"""Cases and a target -> runs."""

from evalloom.engine.run.conditions import Conditions
from evalloom.engine.run.jobs import Chosen, Job, Jobs, Keys, encoded, numbered, run_of
from evalloom.engine.run.needs import NO_NEEDS, Held, Needs, collect_needs
from evalloom.engine.run.one import Runner, Traced, Voices
from evalloom.engine.run.schedule import Slots, execute

__all__ = [
    "NO_NEEDS",
    "Chosen",
    "Conditions",
    "Held",
    "Job",
    "Jobs",
    "Keys",
    "Needs",
    "Runner",
    "Slots",
    "Traced",
    "Voices",
    "collect_needs",
    "encoded",
    "execute",
    "numbered",
    "run_of",
]
