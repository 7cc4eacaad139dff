"""The archiver: moves old completed instants out of the active timeline.

``policy`` has the settings, ``plan`` decides which instants go, ``run`` when; ``history`` writes
the archive of versions 8 and 9, ``log`` that of version 6. An instant's files are deleted only when
the archive that names it is complete.
"""
