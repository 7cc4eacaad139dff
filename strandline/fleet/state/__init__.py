"""The state store of a fleet: few small values, changed by compare-and-set, and leases.

``base.py`` has the contract; the stores are its implementations. Nothing here interprets the
values, and no request of a client waits for a store.
"""
