"""The Triton tests need wheels that there are for Linux on x86-64 only; there, none of them is left out."""

import platform
import sys
from pathlib import Path


# For `import compiled`, a helper beside the tests.
sys.path.insert(0, str(Path(__file__).parent))

HAS_TRITON_WHEELS = sys.platform == "linux" and platform.machine() == "x86_64"
collect_ignore = [] if HAS_TRITON_WHEELS else ["test_compiled.py", "test_interpreter.py", "test_lowering.py"]
