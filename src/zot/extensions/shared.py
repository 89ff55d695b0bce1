"""Extension hosts shared by the runtimes of one process: one for each directory, trust and choice
of extensions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from zot.extensions.guest import Guest
    from zot.extensions.host import ExtensionHost


class SharedHosts:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._hosts: dict[Hashable, ExtensionHost] = {}

    def join(self, key: Hashable, guest: Guest, make: Callable[[], ExtensionHost]) -> ExtensionHost:
        """Return the host of this key; make and start it for the first guest."""
        with self._lock:
            host = self._hosts.get(key)
            if host is None:
                host = self._hosts[key] = make()
                host.join(guest)
                host.start()
            else:
                host.join(guest)
            return host

    def leave(self, key: Hashable, guest: Guest) -> None:
        """Leave the host, and close it after its last guest."""
        with self._lock:
            host = self._hosts[key]
            last = host.leave(guest)
            if last:
                del self._hosts[key]
        if last:
            host.close()
