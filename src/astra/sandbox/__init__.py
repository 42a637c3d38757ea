"""Where model-written code runs: forked sessions without files, network or secrets.

Read ``protocol.py`` for what callers see, then ``local.py``. ``filters.py`` holds the lists of
system calls, ``limits.py`` the allow-list of imports; ``zygote*.py`` run inside and import the
standard library only. The room imports settings and errors alone.
"""
