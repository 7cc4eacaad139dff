"""A write in stages: frozen values, each made from the previous; a type says what has happened.

::

    Checked → Ready → Begun → Tagged → Placed → Written → Committed → WriteResult

``Checked`` means that the table and all rows can be written, and nothing has been; ``Ready`` that
the table exists and failed writes are rolled back; ``Begun`` that the instant is requested and the
timeline read to which look-ups are pinned; ``Tagged`` that each row has its stored file; ``Placed``
that each row has its target file; ``Written`` that the files exist, which requires an inflight
instant; ``Committed`` that readers see them. ``tidied`` removes leftovers, cleans, and returns the
result. ``strandline.write.job`` runs them in order, and always ends the heartbeat.
"""
