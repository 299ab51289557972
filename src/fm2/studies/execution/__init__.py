"""Many trainings, one after the other or side by side: in this process, in local processes, or on a Ray cluster."""
