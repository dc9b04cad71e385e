"""What distsync costs beside others: ``python -m bench``. The scripts server.py, scale.py and pool.py stand alone."""
