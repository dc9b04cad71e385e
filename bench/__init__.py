"""What distsync costs compared with other libraries: ``python -m bench``. server.py, scale.py and
pool.py are separate scripts.
"""
