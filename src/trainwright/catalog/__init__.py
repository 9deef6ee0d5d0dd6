"""What the world has: instances, accelerators, networks, models, versions, prices."""
