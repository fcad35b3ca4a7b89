"""Times as files store them."""

import re
from datetime import UTC, datetime, timedelta

from evalloom.core.clock import utc_now, utc_now_z


def test_times_are_utc_in_the_precision_that_is_asked_for() -> None:
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\+00:00", utc_now())
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", utc_now("milliseconds"))
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", utc_now_z())
    assert abs(datetime.now(UTC) - datetime.fromisoformat(utc_now_z())) < timedelta(minutes=1)
