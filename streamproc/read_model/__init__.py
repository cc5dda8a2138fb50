"""What the topics say now, for people: runs, decisions, commands, budgets, refused records, in SQLite.

The topics are the truth; the model is rebuilt from them at any time. `streamproc page` and `watch --tui` ask it.
"""
