"""A cluster of four nodes beside its peers: `python -m benches.cluster.run`."""
