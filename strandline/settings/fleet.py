"""Settings of a server in a fleet; only ``strandline serve`` has them.

The settings that place tables must be the same at all servers of a fleet.
"""

from __future__ import annotations

from typing import Final

from executor_proxy.seat_ring import DEFAULT, MAX_COPIES, MAX_DEPTH, MAX_TOKENS
from strandline.settings.setting import ServiceSetting

DEFAULT_GROUP: Final = "default"
"""The group of servers that aren't given one, and of tables below no mount."""

FLEET: Final = ServiceSetting(
    "strandline.fleet.url",
    "",
    "State store and name of the fleet that the server joins: zk://HOST:PORT[,HOST:PORT]/FLEET,"
    " postgresql://USER@HOST/DATABASE?fleet=FLEET, or for servers of one machine"
    " sqlite:///PATH[?fleet=FLEET]. If empty, it is on its own.",
    secret=True,
)
ADVERTISE: Final = ServiceSetting(
    "strandline.fleet.advertise",
    "",
    "Where clients and the other servers of the fleet reach this one: http://HOST:PORT or"
    " https://HOST:PORT. It is the server's identity, so it stays the same after a restart.",
)
STANDBY: Final = ServiceSetting(
    "strandline.fleet.standby",
    False,
    "Whether the server waits for the seat of one that died, instead of getting a new one.",
)
GROUP: Final = ServiceSetting(
    "strandline.fleet.group",
    DEFAULT_GROUP,
    "Group of servers to which the server belongs; all of a group have the same roots. auto: one of"
    " the groups with the server's roots, by its rack.",
)
RACK: Final = ServiceSetting(
    "strandline.fleet.rack",
    "",
    "Rack of the server, from which its group follows if that is auto.",
)
ROUTER: Final = ServiceSetting(
    "strandline.fleet.router",
    False,
    "Whether the server only forwards requests to the servers of the tables: it has no roots, no"
    " seat and no group.",
)
CA: Final = ServiceSetting(
    "strandline.fleet.tls.ca",
    "",
    "PEM file of the authorities trusted when requests are forwarded by https; if empty, the"
    " system's.",
)
COPIES: Final = ServiceSetting(
    "strandline.fleet.copies",
    DEFAULT.copies,
    "Servers that answer about a table, its owner included.",
    minimum=1,
    maximum=MAX_COPIES,
)
DEPTH: Final = ServiceSetting(
    "strandline.fleet.depth",
    DEFAULT.depth,
    "1: all of a table has the same owner; 2: each of its partitions has one, for tables too large"
    " for a server.",
    minimum=1,
    maximum=MAX_DEPTH,
)
TOKENS: Final = ServiceSetting(
    "strandline.fleet.tokens",
    DEFAULT.tokens,
    "Points of each seat on the fleet's ring; more make the servers' shares more even.",
    minimum=1,
    maximum=MAX_TOKENS,
    secret=False,
)
HEARTBEAT: Final = ServiceSetting(
    "strandline.fleet.heartbeat.secs",
    3.0,
    "Longest time between two heartbeats of the server; at most a third of"
    " strandline.fleet.dead.secs.",
    minimum=0.1,
    maximum=1200,
)
DEAD: Final = ServiceSetting(
    "strandline.fleet.dead.secs",
    10.0,
    "Time after which a silent server counts as dead, and a standby takes its seat. With ZooKeeper"
    " at most as long as its servers keep a session: their maxSessionTimeout, by default 40 s.",
    minimum=1,
    maximum=3600,
)
