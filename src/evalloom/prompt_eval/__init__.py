"""prompt-eval: a prompt scored 1 to 3 on test points."""
