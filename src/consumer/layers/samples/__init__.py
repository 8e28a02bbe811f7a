"""From silver to samples of readings per window, and to anomalies that detectors find."""
