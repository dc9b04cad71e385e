"""Count of the arrivals at a cyclic barrier: it shows a party whose session ended before a waiter saw it.

The transaction that creates a party's znode also creates and deletes a child of the counter, whose
Stat so tells how many parties ever arrived. A waiter knows how many have arrived since its own
arrival, and compares that with the znodes. It reads the count only if the Stat of the barrier shows
that a child was created and deleted unseen. Children that another program created are not in the
count.

Older programs do not count their parties, and do not write ``left_all``. Without it, nothing is
concluded from the count until a reset, or until no party is left waiting.
"""

from __future__ import annotations

from typing import Any

from distsync._protocols.barriers.generation import BarrierSnapshot
from distsync._protocols.retries import read_all
from distsync._protocols.steps import Children, Exists, Listing, Stat
from distsync._protocols.wait_queue import HALF, LOCK, QueueEntry, creations, in_order, sequence_distance


class ArrivalCount:
    """What a waiter knows of the count.

    Args:
        path: Path of the counter.
        entry: The waiter's contender.
        stat: The counter right after the contender was created; None if the reply was lost.
    """

    def __init__(self, path: str, entry: QueueEntry, stat: Stat | None) -> None:
        self.path = path
        self.entry = entry
        self.number = in_order([entry.name])[0].number
        #: How many parties had ever arrived when the contender was created; None if unknown.
        self.at_arrival = None if stat is None else creations(stat)
        #: How many children, created after it, were neither seen nor have left, when the count showed
        #: that no party was missing.
        self.unseen = 0

    async def find(self) -> None:
        """Find out how many parties had arrived with ours, if the reply was lost.

        A later child that is not there any more counts as a party: the barrier rather breaks, by a
        child that another program created and deleted in this moment, than waits for a missing party.
        """
        while self.at_arrival is None:
            reads = Exists(self.path), Children(self.entry.directory), Exists(self.path)
            count, listing, again = await read_all(*reads)
            if not isinstance(count, Stat) or not isinstance(listing, Listing):
                return
            if isinstance(again, Stat) and again.mzxid == count.mzxid:  # no party arrived in between
                later = 0 if count.mzxid == self.entry.token else self._later_parties(listing)
                self.at_arrival = creations(count) - later

    def _later_parties(self, listing: Listing) -> int:
        """Return how many parties may have been created after our contender."""
        others = [each for each in in_order(listing.names) if LOCK not in each.name]
        later = sum(sequence_distance(each.number, self.number) > 0 for each in others)
        return (creations(listing.stat) - self.number - 1) % HALF - later

    def _unseen_in(self, view: BarrierSnapshot) -> int:
        """Return how many of the children created after our contender were neither seen nor have left."""
        return view.created_later - view.later - view.record.left_after(self.number)

    def may_miss_a_party(self, view: BarrierSnapshot) -> bool:
        """Return whether the session of a party that arrived after ours may have ended unseen."""
        return self.at_arrival is not None and view.record.left_all and self._unseen_in(view) > self.unseen

    def misses_a_party(self, count: Any, view: BarrierSnapshot) -> bool:
        """Return whether ``count``, read before ``view``, includes a party that neither waits nor has left."""
        since = creations(count) - (self.at_arrival or 0) if isinstance(count, Stat) else 0
        return since > view.later + view.record.left_after(self.number)

    def accept(self, view: BarrierSnapshot) -> None:
        """Record that the count shows no missing party in ``view``."""
        self.unseen = self._unseen_in(view)
