"""Records to cases: datasets, dialects, field mapping, and the checks of records."""
