"""Cases and a target -> runs."""

from evalloom.run.jobs import Chosen, Job, Jobs, Keys, encoded, run_of
from evalloom.run.one import Runner, Traced, Voices
from evalloom.run.schedule import Slots, execute

__all__ = ["Chosen", "Job", "Jobs", "Keys", "Runner", "Slots", "Traced", "Voices", "encoded", "execute", "run_of"]
