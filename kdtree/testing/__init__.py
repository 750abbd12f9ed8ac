"""Test a kernel of your own against the truth; needs hypothesis. See docs/test-your-kernel.md."""

from .check import ARGUMENTS, Outcome, check, outcomes
from .kernel import Kernel
from .model_strategies import ROUNDED
from .strategies import EXACT

__all__ = ["ARGUMENTS", "EXACT", "ROUNDED", "Kernel", "Outcome", "check", "outcomes"]
