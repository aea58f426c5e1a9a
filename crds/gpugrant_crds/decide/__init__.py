"""Who holds which device: the one decision that admission, reconciler, commands and tests share (design 4).

Pure and level-triggered: the result depends on the stored objects, the ledger and the gate's report, never on the
order in which news came. Whoever is in the ledger stays; a newcomer never takes anything from anybody.
"""

from gpugrant_crds.decide.core import Decision, decide
from gpugrant_crds.decide.verdicts import Verdict, without_machine

__all__ = ["Decision", "Verdict", "decide", "without_machine"]
