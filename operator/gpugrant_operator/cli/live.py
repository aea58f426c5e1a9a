"""What the gate of this machine says now (R21). Another machine's gate can't be asked from here."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpugrant_crds.layout import Layout
from gpugrant_crds.snapshot import GateStatus
from gpugrant_crds.v1alpha1 import GpuMachine
from gpugrant_operator import gateclient
from gpugrant_operator.gateclient import GateError


@dataclass(frozen=True, slots=True)
class Answer:
    """One gate, at one moment."""

    status: GateStatus
    devices: tuple[str, ...] | None
    """The usable names of the specs as they are now; None: not told."""

    def serves(self, machine: GpuMachine) -> bool:
        """Whether it is the gate of this machine; one that holds no snapshot yet is known by its name."""
        if self.status.machine_uid:
            return self.status.machine_uid == machine.metadata.uid
        return self.status.machine in (machine.node, machine.metadata.name)


@dataclass(frozen=True, slots=True)
class Gate:
    """The gate of this machine, by its control socket."""

    layout: Layout

    def answer(self, *, in_use: bool = False) -> Answer | GateError:
        """Its status and devices, or why they can't be had."""

        async def asked(gate: gateclient.GateClient) -> Answer:
            status = await gate.status(in_use=in_use)
            try:
                return Answer(status, (await gate.devices()).devices)
            except GateError:
                return Answer(status, None)

        try:
            return gateclient.ask(self.layout.control("gate"), asked)
        except GateError as error:
            return error

    def inventory(self) -> bytes | GateError:
        """The bytes of the inventory, or why they can't be had."""
        try:
            return gateclient.ask(self.layout.control("gate"), lambda gate: gate.inventory())
        except GateError as error:
            return error

    def of(self, machines: tuple[GpuMachine, ...]) -> Mapping[str, Answer]:
        """By machine name: the answers that can be had."""
        answer = self.answer()
        if isinstance(answer, GateError):
            return {}
        return {machine.metadata.name: answer for machine in machines if answer.serves(machine)}
