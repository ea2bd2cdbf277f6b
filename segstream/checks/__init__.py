"""The contract that every plug-in must pass. Public: run it on yours.

    from segstream.checks import check_method
    check_method(MyMethod)

A new promise becomes a check here, and with that a check for all plug-ins.
"""

from __future__ import annotations

from segstream.checks.datasets import check_dataset, check_stream
from segstream.checks.methods import METHOD_CHECKS, check_method
from segstream.checks.networks import check_network
from segstream.checks.policies import check_policy

__all__ = ["METHOD_CHECKS", "check_dataset", "check_method", "check_network", "check_policy", "check_stream"]
