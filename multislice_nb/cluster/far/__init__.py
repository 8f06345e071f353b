"""What runs on a worker before anything is installed there: scripts for any Python from 3.8, standard library only.

They travel over SSH with each call (see `multislice_nb.cluster.errand`), so a worker needs nothing of ours for
them, and a notebook of any version meets its own.
"""
