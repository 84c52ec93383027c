"""The overhead of `cenote advise` on watched programs."""
