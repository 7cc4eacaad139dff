"""A write in stages: frozen values, each made from the one before, whose types say what happened.

::

    Checked → Ready → Begun → Tagged → Placed → Written → Committed → WriteResult

``Checked`` means that the table and all rows can be written, and that nothing is; ``Ready`` that
the table exists and failed writes are rolled back; ``Begun`` that the instant is requested and the
timeline is read that look-ups are pinned to; ``Tagged`` that each row knows its stored file;
``Placed`` that each knows the file it goes to; ``Written`` that the files exist, which only an
inflight instant may have; ``Committed`` that readers see them. ``tidied`` removes what a write
needs no longer, cleans, and returns the result. ``strandline.write.job`` has their order, and ends
the heartbeat whatever happens.
"""
