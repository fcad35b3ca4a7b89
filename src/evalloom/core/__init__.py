"""What everything else rests on: the nouns, errors, HTTP, the sandbox, users' code, expressions, ranking."""
