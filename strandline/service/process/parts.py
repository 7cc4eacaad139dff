"""The parts of a service, put together: views, answers, markers, metrics, token, app, hot path."""

from __future__ import annotations

import os
import threading
from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from flask import Flask

from fsview.metrics import Metrics
from fsview.store.stores import Stores
from fsview.view_manager import Opener, ViewManager
from strandline.service.api.application import Application, ServiceApp
from strandline.service.api.flask_app import create_app
from strandline.service.api.instant_states import InstantStates
from strandline.service.api.partitioner import RemotePartitioner
from strandline.service.api.readiness import Looks, Readiness
from strandline.service.http.authorization import Admission
from strandline.service.http.refusals import Refusals
from strandline.service.lookup.answer import REQUESTS, Answers
from strandline.service.lookup.ready_answer import HotCount, HotPath
from strandline.service.lookup.sampling_check import SamplingCheck, Waiter
from strandline.service.marker.registry import MarkerService
from strandline.service.process.options import PartsOptions
from timeline.clock import Clock, SystemClock
from timeline.storage.open import open_storage


class Parts:
    """One service without its server; every part is at hand for whoever tests it.

    ``_lock`` guards ``_told``: what the hot path counted, as far as the metrics have been told.
    """

    def __init__(
        self,
        options: PartsOptions,
        *,
        clock: Clock | None = None,
        opener: Opener | None = None,
        ending: Waiter | None = None,
    ) -> None:
        """Put the parts together; nothing runs before ``start``.

        Args:
            options: What the service is told.
            clock: To time by.
            opener: Opens a table's storage; ``None``: as its base path asks for.
            ending: What the background check waits by.
        """
        self._clock = clock or SystemClock()
        self._started = self._clock.monotonic()
        self._lock = threading.Lock()
        self._told: Counter[HotCount] = Counter()
        self._settings = options.shown
        self.connections: Callable[[], Mapping[str, int]] = dict
        self.threads: Callable[[], Mapping[str, Any]] = dict
        self.metrics = Metrics()
        self.views = ViewManager(
            options.roots,
            storage_options=options.storage_options,
            metrics=self.metrics,
            clock=self._clock,
            opener=opener or partial(open_storage, limits=options.read_limits),
            retained_snapshots=options.retained_snapshots,
            stores=Stores(options.store),
        )
        self.checks = SamplingCheck(
            self.views, self.metrics, interval_s=options.check_interval_s, ending=ending
        )
        self.admission = Admission(options.token, options.admit_networks)
        self.markers = MarkerService(
            self.views.storage_of, conflicts=options.conflicts, clock=self._clock
        )
        self.readiness = Readiness(Looks(self.views), self._clock)
        self.answers = Answers(self.views, self.metrics, gzip=options.gzip)
        self.hot = HotPath(self.answers)
        self.flask: Flask = create_app(
            self.answers,
            self.markers,
            self.admission,
            self.readiness,
            self.status,
            partitioner=RemotePartitioner(),
            instant_states=InstantStates(self.views.storage_of),
            gzip=options.gzip,
        )
        paths = (rule.rule for rule in self.flask.url_map.iter_rules())
        self.refusals = Refusals(self._clock, paths)

    def application(self, rest: Application) -> ServiceApp:
        """Return what answers the requests that aren't answered from ready bytes.

        Args:
            rest: Runs the Flask app on threads.
        """
        return ServiceApp(self.markers, self.readiness, rest)

    def status(self) -> dict[str, Any]:
        """Return counters and figures of the service and its tables, fit for JSON."""
        self._count_hot()
        requests: Counter[str] = Counter()
        for (name, labels), count in self.metrics.counts().items():
            if name == REQUESTS:
                requests[dict(labels)["route"]] += count
        return {
            "pid": os.getpid(),
            "uptime_s": round(self._clock.monotonic() - self._started, 3),
            "ready": self.readiness.status(),
            "requests": dict(sorted(requests.items())),
            "refusals": self.refusals.status(),
            "connections": dict(self.connections()),
            "threads": dict(self.threads()),
            "ready_answers": self.answers.kept.status(),
            "markers": self.markers.status(),
            "store": self.views.stores.status(),
            "tables": self.views.status(),
            "settings": dict(self._settings),
        }

    def start(self) -> None:
        """Begin what runs by itself."""
        self.checks.start()
        self.markers.start()

    def close(self) -> None:
        """End what has threads."""
        self.checks.close()
        self.markers.close()
        self.views.close()

    def _count_hot(self) -> None:
        """Book what was answered from ready bytes since the last time."""
        with self._lock:
            counted = Counter(self.hot.counts)
            for key, count in (counted - self._told).items():
                table, route = key
                labels = {"table": str(table.table_id), "route": route, "way": "ready"}
                self.metrics.add(REQUESTS, count, **labels)
            self._told = counted
