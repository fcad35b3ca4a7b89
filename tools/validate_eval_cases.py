"""`python tools/validate_eval_cases.py` in a checkout: the command of that name, installed or not."""

import os
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"

sys.path.insert(0, str(ROOT / "src"))
try:
    from evalloom.tools.validate_eval_cases import main
except ImportError as fault:
    python = VENV / "bin" / "python"
    if python.exists() and Path(sys.prefix) != VENV:
        os.execv(python, [str(python), __file__, *sys.argv[1:]])
    print(f"validate_eval_cases: {fault}. Run ./scripts/setup", file=sys.stderr)
    sys.exit(3)

if __name__ == "__main__":
    main()
