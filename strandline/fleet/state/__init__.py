"""The state store of a fleet: few small values, changed by compare-and-set, and leases.

``base.py`` has the contract; each other store is one of its implementations. Nothing here knows
what the values mean, and no request of a client waits for a store.
"""
