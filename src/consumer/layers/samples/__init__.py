"""From silver to samples and anomalies of readings: what windows keep of them, and what detectors notice."""
