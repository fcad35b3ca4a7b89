"""One suggestion for each code of a trace: what to do about it."""

from __future__ import annotations

from evalloom.ui.language import phrase

SUGGESTIONS = {
    "connect_failed": phrase("Check that the data source exists and can be reached from here."),
    "dependency_cycle": phrase("Remove one of the edges between these nodes."),
    "missing_variable": phrase("Declare a variable of this name in the project, or add it to the row."),
    "no_rows": phrase("The query found nothing: change it, or give the row its own value."),
    "not_allowed": phrase("Allow it in the section resolvers of evalloom.yaml."),
    "not_found": phrase("Create it, or correct its name; resolvers: folder: in evalloom.yaml says where files are."),
    "outside_folder": phrase("Move the file into the folder of the resolvers, or change that folder in evalloom.yaml."),
    "query_failed": phrase("Try the query on the data source itself, and correct it."),
    "readonly_required": phrase("Only SELECT and WITH are allowed here: change the query."),
    "resolver_missing": phrase("Give the variable a resolver such as sqlite://file, or make it static."),
    "row_invalid": phrase("Make the row an object, and its variables an object too."),
    "timeout": phrase("Raise resolvers: timeout_s: in evalloom.yaml, or make the source answer faster."),
    "unsupported_scheme": phrase("Use sqlite://, sql://, chat://, env://, file:// or https://."),
    "value_truncated": phrase("Shorten the value: what is beyond the limit is not used."),
}
