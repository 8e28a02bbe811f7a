"""Tables in Iceberg: commits that happen once, markers, data files and scans."""
