"""What a listener does with the records that it reads."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamproc.model.controls import UnverifiedControlEvent, read_control

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterable

    from streamproc.client.command_handler import CommandHandler
    from streamproc.client.guard import GuardRegistry
    from streamproc.client.halt_records import ControlNews, StatusNews
    from streamproc.client.halts import Halts
    from streamproc.client.providers import ProviderGate
    from streamproc.client.subscription import Subscription


class Dispatcher:
    """Applies received records: updates the halts, fires guards, and feeds subscriptions. All calls come on the event
    loop."""

    def __init__(
        self,
        halts: Halts,
        guards: GuardRegistry,
        caught_up: asyncio.Event,
        subscriptions: set[Subscription],
        command_handler: CommandHandler,
        providers: ProviderGate | None = None,
    ) -> None:
        self.halts = halts
        self.guards = guards
        self.command = command_handler.apply
        """Applies a record of the `commands` topic."""
        self._providers = providers
        self._caught_up = caught_up
        self._subscriptions = subscriptions

    def snapshot(self, statuses: Iterable[StatusNews]) -> None:
        """Apply the latest statuses of runs that are halted, or were until now, or have tasks that ended: from now on
        every earlier halt is known."""
        for news in statuses:
            self.status(news)
        self._caught_up.set()

    def status(self, news: StatusNews) -> None:
        """Apply a record of the `runs` topic."""
        if self.halts.status(news):
            self.guards.fire(news.run_id)

    def control(self, news: ControlNews, value: bytes) -> None:
        """Apply a record of the `control` topic; `value` is its JSON."""
        if not self.halts.is_new(news.id):
            return
        if news.provider is not None:
            if self._providers is not None:
                self._providers.heard([news.provider])
        elif self.halts.control(news):
            self.guards.fire(news.run_id)
        if self._subscriptions:
            control = read_control(value, news.traceparent)
            for subscription in tuple(self._subscriptions):
                subscription.offer(control)

    def unverified(self, value: bytes) -> None:
        """Pass a record of the `control` topic that no worker has signed to the subscriptions that want it."""
        for subscription in tuple(self._subscriptions):
            if subscription.unverified:
                subscription.offer(UnverifiedControlEvent.model_validate_json(value))

    @property
    def subscribed(self) -> bool:
        """Whether there are subscriptions."""
        return bool(self._subscriptions)
