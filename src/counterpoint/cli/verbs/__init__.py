"""One module per verb: its line and its place in the overview, its help, its flags and what it does.

A module named ``<verb>_verb`` is a verb; nothing else names it. Its docstring is its help. Its ``run`` takes the record
of its flags, and settings of training where its ``SETTINGS`` name some; it returns an exit code, or nothing for 0.

A module loads without torch, so that help is instant: functions of ``counterpoint`` and imports within ``run`` load it.
"""
