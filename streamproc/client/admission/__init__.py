"""Admission: checks, before money is spent, that every account that pays for it still has budget."""

from __future__ import annotations

from streamproc.client.admission.admission import Admission, Payer
from streamproc.client.admission.births import Birth
from streamproc.client.admission.blocking import BlockingAdmission
from streamproc.client.admission.reservation import Reservation

__all__ = ["Admission", "Birth", "BlockingAdmission", "Payer", "Reservation"]
