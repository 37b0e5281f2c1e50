"""A rank that a launcher started: finds its place, takes part in two rounds, and says what came of it."""

import json

import numpy as np
import tierfold

place = tierfold.launch_place()
with tierfold.connect() as client:
    counts = client.gather_counts(client.rank + 1)
    values = np.array([client.rank / 3, 1], np.float32)
    mass = client.all_reduce(values, mass=client.rank + 0.5).mass
print(
    json.dumps(
        {
            "language": "Python",
            "rank": client.rank,
            "worldSize": client.world_size,
            "localRank": place.local_rank,
            "source": place.source,
            "counts": counts.tolist(),
            "mass": mass,
            "values": values.tolist(),
        }
    ),
    flush=True,
)
